; Around fork.  The C library calls these three (pthread_atfork), not Python: between Python's own hooks other threads may
; take the GIL, and one that waits for the memory pool with the GIL in its hands would wait for ever.

; Before: no other thread may hold the pool's lock, or the child would wait for it for ever; nor be about to map or unmap
; something, of which the child would not know what became.
define void @hlojit_fork_prepare() {
  call void @memory.acquire_settled()
  ret void
}

define void @hlojit_fork_parent() {
  call void @memory.free_lock()
  ret void
}

; In the child: the workers are gone.
define void @hlojit_fork_child() {
  call void @memory.free_lock()
  call void @hlojit_pool_reset()
  ret void
}

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
  store atomic i64 0, ptr @library.calls seq_cst, align 8
  call void @hlojit_pool_reset()
  ret void
}

; Calls of libraries that have threads or locks of their own (LAPACK's): none may be under way when the C library copies the
; process, or the library's own preparations for it wait for ever.  Python closes the gate before a fork, waits until no call
; is under way, and opens it afterwards; who comes meanwhile waits.
@library.calls = private global i64 0, align 8
@library.is_closed = private global i32 0, align 4

define void @hlojit_library_enter() {
entry:
  br label %try
try:
  %before = atomicrmw add ptr @library.calls, i64 1 seq_cst
  %closed = load atomic i32, ptr @library.is_closed seq_cst, align 4
  %is_open = icmp eq i32 %closed, 0
  br i1 %is_open, label %enter, label %leave
enter:
  ret void
leave:
  %after = atomicrmw sub ptr @library.calls, i64 1 seq_cst
  br label %wait
wait:
  call void @thread.yield()
  %still = load atomic i32, ptr @library.is_closed seq_cst, align 4
  %is_still = icmp ne i32 %still, 0
  br i1 %is_still, label %wait, label %try
}

define void @hlojit_library_leave() {
  %before = atomicrmw sub ptr @library.calls, i64 1 seq_cst
  ret void
}

; Close the gate; returns how many calls are under way.
define i64 @hlojit_library_close() {
  store atomic i32 1, ptr @library.is_closed seq_cst, align 4
  %calls = load atomic i64, ptr @library.calls seq_cst, align 8
  ret i64 %calls
}

define void @hlojit_library_open() {
  store atomic i32 0, ptr @library.is_closed seq_cst, align 4
  ret void
}

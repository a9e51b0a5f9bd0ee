; Parallel loops on platforms whose wait calls the pool does not know: every task runs on the calling thread.

define private void @parallel(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain) {
  call void @serial(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain)
  ret void
}

define void @hlojit_pool_set_threads(i32 %threads) {
  ret void
}

define i32 @hlojit_pool_threads() {
  ret i32 1
}

define i32 @hlojit_pool_started() {
  ret i32 0
}

define void @hlojit_pool_reset() {
  ret void
}

define void @hlojit_pool_shutdown() {
  ret void
}

define void @hlojit_pool_set_spin(i64 %ticks) {
  ret void
}

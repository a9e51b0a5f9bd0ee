; Pages from the system: anywhere else, by malloc.

declare ptr @malloc(i64)
declare void @free(ptr)

; `length` bytes, aligned to 64, or null.  The word before them remembers what malloc returned.
define private ptr @pages.map(i64 %length) {
entry:
  %padded = add i64 %length, 128
  %raw = call ptr @malloc(i64 %padded)
  %is_refused = icmp eq ptr %raw, null
  br i1 %is_refused, label %none, label %align
align:
  %address = ptrtoint ptr %raw to i64
  %up = add i64 %address, 127
  %aligned = and i64 %up, -64
  %start = inttoptr i64 %aligned to ptr
  %remember = getelementptr i8, ptr %start, i64 -8
  store ptr %raw, ptr %remember, align 8
  ret ptr %start
none:
  ret ptr null
}

define private void @pages.unmap(ptr %start, i64 %length) {
  %remember = getelementptr i8, ptr %start, i64 -8
  %raw = load ptr, ptr %remember, align 8
  call void @free(ptr %raw)
  ret void
}

define private void @thread.yield() {
  ret void
}

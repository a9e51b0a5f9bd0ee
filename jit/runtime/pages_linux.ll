; Pages from the system: Linux.

declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)

; `length` bytes (whole huge pages), aligned to a huge page of two megabytes, or null.
define private ptr @pages.map(i64 %length) {
entry:
  ; Ask for one huge page more and cut off what lies before and behind the aligned part.
  %padded = add i64 %length, 2097152
  ; PROT_READ | PROT_WRITE = 3, MAP_PRIVATE | MAP_ANONYMOUS = 34
  %raw = call ptr @mmap(ptr null, i64 %padded, i32 3, i32 34, i32 -1, i64 0)
  %address = ptrtoint ptr %raw to i64
  %is_refused = icmp eq i64 %address, -1
  br i1 %is_refused, label %none, label %align
align:
  %up = add i64 %address, 2097151
  %aligned = and i64 %up, -2097152
  %before = sub i64 %aligned, %address
  %after = sub i64 2097152, %before
  %has_before = icmp ne i64 %before, 0
  br i1 %has_before, label %cut_before, label %tail
cut_before:
  %unmapped = call i32 @munmap(ptr %raw, i64 %before)
  br label %tail
tail:
  %start = getelementptr i8, ptr %raw, i64 %before
  %end = getelementptr i8, ptr %start, i64 %length
  %has_after = icmp ne i64 %after, 0
  br i1 %has_after, label %cut_after, label %advise
cut_after:
  %unmapped_after = call i32 @munmap(ptr %end, i64 %after)
  br label %advise
advise:
  %advised = call i32 @madvise(ptr %start, i64 %length, i32 14)   ; MADV_HUGEPAGE; a refusal does no harm
  ret ptr %start
none:
  ret ptr null
}

define private void @pages.unmap(ptr %start, i64 %length) {
  %unmapped = call i32 @munmap(ptr %start, i64 %length)
  ret void
}

define private void @thread.yield() {
  call void @relax()
  %status = call i32 @sched_yield()
  ret void
}

; Parallel loops: the entry that generated code calls, and the loop for one thread.
;
; void hlojit_parallel_for(ptr context, ptr kernel, ptr buffers, i64 tasks, i64 grain)
;
; calls kernel(context, buffers, begin, end) for ranges that together cover 0 <= task < tasks, each range at least
; `grain` tasks long (but the last), on several threads when that is worth it.  It returns when all are done.  After a
; cancellation the ranges that have not begun are skipped.

define void @hlojit_parallel_for(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain) {
entry:
  %some = icmp sgt i64 %tasks, 0
  br i1 %some, label %decide, label %done
decide:
  %is_one_range = icmp sle i64 %tasks, %grain
  br i1 %is_one_range, label %direct, label %split
direct:
  call void %kernel(ptr %context, ptr %buffers, i64 0, i64 %tasks)
  br label %done
split:
  %grain_at_least_one = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  call void @parallel(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain_at_least_one)
  br label %done
done:
  ret void
}

; One thread: range by range, so that a long launch can still be interrupted.
define private void @serial(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain) {
entry:
  br label %range
range:
  %begin = phi i64 [ 0, %entry ], [ %end, %next ]
  %limit = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %limit, i64 %tasks)
  call void %kernel(ptr %context, ptr %buffers, i64 %begin, i64 %end)
  %stop = call i32 @hlojit_poll(ptr %context)
  %go = icmp eq i32 %stop, 0
  br i1 %go, label %next, label %done
next:
  %more = icmp slt i64 %end, %tasks
  br i1 %more, label %range, label %done
done:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

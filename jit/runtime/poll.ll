; Interruption: whether the running call is to stop, and errors that kernels report.

@poll.interval = internal global i64 20000000   ; ticks between two questions of the hook
@poll.hook = internal global ptr null           ; i32 hook(ptr context, i64 next deadline, i64 deadline): see poll.due

; The hook belongs to whoever starts programs from a language with signals and locks of its own (python.ll); null: nobody.
define void @hlojit_poll_setup(i64 %interval, ptr %hook) {
  store atomic i64 %interval, ptr @poll.interval monotonic, align 8
  store atomic ptr %hook, ptr @poll.hook monotonic, align 8
  ret void
}

define i64 @hlojit_ticks() {
  %now = call i64 @ticks()
  ret i64 %now
}

; i32 hlojit_poll(ptr context): not 0 when the call is to stop.  Host programs call it at the back edge of loops and
; between kernels; it reads one word and a clock.  Every few milliseconds the hook is asked, which may cancel the call.
define i32 @hlojit_poll(ptr %context) {
entry:
  %cancel_at = call ptr @context.cancel(ptr %context)
  %cancel = load atomic i32, ptr %cancel_at monotonic, align 4
  %is_cancelled = icmp ne i32 %cancel, 0
  br i1 %is_cancelled, label %stop, label %clock
clock:
  %now = call i64 @ticks()
  %deadline_at = call ptr @context.poll_deadline(ptr %context)
  %deadline = load atomic i64, ptr %deadline_at monotonic, align 8
  %is_due = icmp uge i64 %now, %deadline
  br i1 %is_due, label %due, label %go, !prof !0
due:
  %status = call i32 @poll.due(ptr %context, i64 %now, i64 %deadline)
  ret i32 %status
go:
  ret i32 0
stop:
  ret i32 1
}

!0 = !{!"branch_weights", i32 1, i32 1000}

; The deadline is the hook's to move: it may be another thread's business.
define private i32 @poll.due(ptr %context, i64 %now, i64 %deadline) noinline cold {
entry:
  %interval = load atomic i64, ptr @poll.interval monotonic, align 8
  %next = add i64 %now, %interval
  %hook = load atomic ptr, ptr @poll.hook monotonic, align 8
  %is_missing = icmp eq ptr %hook, null
  br i1 %is_missing, label %advance, label %ask
ask:
  %status = call i32 %hook(ptr %context, i64 %next, i64 %deadline)
  ret i32 %status
advance:
  %deadline_at = call ptr @context.poll_deadline(ptr %context)
  store atomic i64 %next, ptr %deadline_at monotonic, align 8
  ret i32 0
}

; void hlojit_fail(ptr context, i32 status, i64 detail0, i64 detail1): record an error and stop the call.  Kernels and host
; programs may call it from any thread; the first error wins.
define void @hlojit_fail(ptr %context, i32 %status, i64 %detail0, i64 %detail1) {
entry:
  %error_at = call ptr @context.error(ptr %context)
  %exchange = cmpxchg ptr %error_at, i32 0, i32 %status seq_cst seq_cst
  %is_first = extractvalue { i32, i1 } %exchange, 1
  br i1 %is_first, label %record, label %done
record:
  %detail0_at = call ptr @context.detail0(ptr %context)
  %detail1_at = call ptr @context.detail1(ptr %context)
  store i64 %detail0, ptr %detail0_at, align 8
  store i64 %detail1, ptr %detail1_at, align 8
  br label %done
done:
  %cancel_at = call ptr @context.cancel(ptr %context)
  store atomic i32 1, ptr %cancel_at seq_cst, align 4
  ret void
}

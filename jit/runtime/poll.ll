; Interruption: whether the running call is to stop, and errors that kernels report.

@poll.interval = internal global i64 20000000   ; ticks between two looks at Python's signals
@poll.main_thread = internal global i64 0       ; Python handles signals on its main thread only
@poll.closing = internal global i32 0           ; not 0: the interpreter ends, and so do the calls of other threads

declare i64 @PyThread_get_thread_ident()
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

define void @hlojit_poll_setup(i64 %interval, i64 %main_thread) {
  store atomic i64 %interval, ptr @poll.interval monotonic, align 8
  store atomic i64 %main_thread, ptr @poll.main_thread monotonic, align 8
  ret void
}

; Stop what runs on other threads than the main one, for good: the interpreter is about to be taken apart.
define void @hlojit_poll_close() {
  store atomic i32 1, ptr @poll.closing monotonic, align 4
  ret void
}

define i64 @hlojit_ticks() {
  %now = call i64 @ticks()
  ret i64 %now
}

; i32 hlojit_poll(ptr context): not 0 when the call is to stop.  Host programs call it at the back edge of loops and
; between kernels; it reads one word and a clock.  Every few milliseconds, on Python's main thread, it lets Python run
; its signal handlers; when one raises, the call is cancelled.
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

define private i32 @poll.due(ptr %context, i64 %now, i64 %deadline) noinline cold {
entry:
  ; Workers poll with the same context: only the thread that made the call may touch Python.
  %thread_at = call ptr @context.thread(ptr %context)
  %owner = load i64, ptr %thread_at, align 8
  %self = call i64 @PyThread_get_thread_ident()
  %is_owner = icmp eq i64 %owner, %self
  br i1 %is_owner, label %advance, label %go
advance:
  %interval = load atomic i64, ptr @poll.interval monotonic, align 8
  %next = add i64 %now, %interval
  %deadline_at = call ptr @context.poll_deadline(ptr %context)
  store atomic i64 %next, ptr %deadline_at monotonic, align 8
  %is_first = icmp eq i64 %deadline, 0
  br i1 %is_first, label %go, label %main
main:
  %main_thread = load atomic i64, ptr @poll.main_thread monotonic, align 8
  %is_main = icmp eq i64 %self, %main_thread
  br i1 %is_main, label %signals, label %give
signals:
  call void @hlojit_enter_python(ptr %context)
  %raised = call i32 @PyErr_CheckSignals()
  call void @hlojit_leave_python(ptr %context)
  %is_raised = icmp ne i32 %raised, 0
  br i1 %is_raised, label %cancel, label %go
give:
  ; A call that was thought short but is not gives other Python threads their turn.
  call void @hlojit_leave_python(ptr %context)
  %closing = load atomic i32, ptr @poll.closing monotonic, align 4
  %is_closing = icmp ne i32 %closing, 0
  br i1 %is_closing, label %cancel, label %go
cancel:
  call void @hlojit_fail(ptr %context, i32 1, i64 0, i64 0)
  ret i32 1
go:
  ret i32 0
}

; Take the GIL if the call released it.  Only for the thread that made the call.
define void @hlojit_enter_python(ptr %context) {
entry:
  %state_at = call ptr @context.thread_state(ptr %context)
  %state = load ptr, ptr %state_at, align 8
  %is_released = icmp ne ptr %state, null
  br i1 %is_released, label %take, label %done
take:
  call void @PyEval_RestoreThread(ptr %state)
  store ptr null, ptr %state_at, align 8
  br label %done
done:
  ret void
}

; Release the GIL if the call holds it.  The end of the call takes it again.
define void @hlojit_leave_python(ptr %context) {
entry:
  %state_at = call ptr @context.thread_state(ptr %context)
  %state = load ptr, ptr %state_at, align 8
  %is_held = icmp eq ptr %state, null
  br i1 %is_held, label %give, label %done
give:
  %saved = call ptr @PyEval_SaveThread()
  store ptr %saved, ptr %state_at, align 8
  br label %done
done:
  ret void
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

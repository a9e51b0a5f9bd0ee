; What the runtime does for Python: signals, the GIL, fork.  Only this file and call.ll know of Python; the core is complete
; without them.

@python.main_thread = internal global i64 0     ; Python handles signals on its main thread only
@python.closing = internal global i32 0         ; not 0: the interpreter ends, and so do the calls of other threads

declare i64 @PyThread_get_thread_ident()
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @hlojit_poll_setup(i64, ptr)
declare void @hlojit_fail(ptr, i32, i64, i64)
declare void @hlojit_fork_child()
declare void @hlojit_leave_program(ptr)
declare void @hlojit_enter_program(ptr)

define void @hlojit_python_setup(i64 %interval, i64 %main_thread) {
  store atomic i64 %main_thread, ptr @python.main_thread monotonic, align 8
  call void @hlojit_poll_setup(i64 %interval, ptr @python.due)
  ret void
}

; Stop what runs on other threads than the main one, for good: the interpreter is about to be taken apart.
define void @hlojit_python_close() {
  store atomic i32 1, ptr @python.closing monotonic, align 4
  ret void
}

; Asked by polls that are due.  On Python's main thread it lets Python run its signal handlers; when one raises, the call is
; cancelled.
define private i32 @python.due(ptr %context, i64 %next, i64 %deadline) {
entry:
  ; Workers poll with the same context: only the thread that made the call may touch Python.
  %thread_at = call ptr @context.thread(ptr %context)
  %owner = load i64, ptr %thread_at, align 8
  %self = call i64 @PyThread_get_thread_ident()
  %is_owner = icmp eq i64 %owner, %self
  br i1 %is_owner, label %advance, label %go
advance:
  %deadline_at = call ptr @context.poll_deadline(ptr %context)
  store atomic i64 %next, ptr %deadline_at monotonic, align 8
  %is_first = icmp eq i64 %deadline, 0
  br i1 %is_first, label %go, label %main
main:
  %main_thread = load atomic i64, ptr @python.main_thread monotonic, align 8
  %is_main = icmp eq i64 %self, %main_thread
  br i1 %is_main, label %signals, label %give
signals:
  call void @hlojit_enter_python(ptr %context)
  call void @hlojit_leave_program(ptr %context)
  %raised = call i32 @PyErr_CheckSignals()
  call void @hlojit_enter_program(ptr %context)
  call void @hlojit_leave_python(ptr %context)
  %is_raised = icmp ne i32 %raised, 0
  br i1 %is_raised, label %cancel, label %go
give:
  ; A call that was thought short but is not gives other Python threads their turn.
  call void @hlojit_leave_python(ptr %context)
  %closing = load atomic i32, ptr @python.closing monotonic, align 4
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

; In a child made by fork, where this thread is the main one.
define void @hlojit_python_fork_child() {
  call void @hlojit_fork_child()
  %self = call i64 @PyThread_get_thread_ident()
  store atomic i64 %self, ptr @python.main_thread monotonic, align 8
  ret void
}

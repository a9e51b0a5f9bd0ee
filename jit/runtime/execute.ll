; The execution of a host program: temporaries, constants, context, floating-point environment.  It knows nothing of whoever
; calls; with the rest of the core it is all that a compiled program needs to run.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; i32 hlojit_execute(ptr context, ptr record, ptr slots): run the program of a call record (layout.py).  The context is all
; zero, but for what its owner keeps there (thread); `slots` holds the inputs and outputs, and has room for the arena and the
; constants behind them.  Returns a status; what explains it, and the counters of the call, are in the context, and the record
; if the program has begun.
define i32 @hlojit_execute(ptr %context, ptr %record, ptr %slots) {
entry:
  %inputs_at = call ptr @call.inputs(ptr %record)
  %inputs = load i64, ptr %inputs_at, align 8
  %outputs_at = call ptr @call.outputs(ptr %record)
  %outputs = load i64, ptr %outputs_at, align 8
  %arena_slot = add i64 %inputs, %outputs
  %arena_slot_at = getelementptr inbounds i64, ptr %slots, i64 %arena_slot

  %constants_at = call ptr @call.constants(ptr %record)
  %constants = load i64, ptr %constants_at, align 8
  %constant_bytes = shl i64 %constants, 3
  %table_at = call ptr @call.constant_table(ptr %record)
  %table = load ptr, ptr %table_at, align 8
  %constant_slots = getelementptr inbounds i64, ptr %arena_slot_at, i64 1
  call void @llvm.memcpy.p0.p0.i64(ptr %constant_slots, ptr %table, i64 %constant_bytes, i1 false)

  %arena_bytes_at = call ptr @call.arena_bytes(ptr %record)
  %arena_bytes = load i64, ptr %arena_bytes_at, align 8
  %no_arena = icmp eq i64 %arena_bytes, 0
  br i1 %no_arena, label %prepare, label %reserve
reserve:
  %reserved = call ptr @hlojit_allocate(i64 %arena_bytes)
  %is_refused = icmp eq ptr %reserved, null
  br i1 %is_refused, label %exhausted, label %prepare
exhausted:
  call void @hlojit_fail(ptr %context, i32 2, i64 %arena_bytes, i64 0)
  ret i32 2

prepare:
  %arena = phi ptr [ null, %entry ], [ %reserved, %reserve ]
  store ptr %arena, ptr %arena_slot_at, align 8
  %c_arena = call ptr @context.arena(ptr %context)
  store ptr %arena, ptr %c_arena, align 8
  %c_record = call ptr @context.record(ptr %context)
  store ptr %record, ptr %c_record, align 8
  %limit_at = call ptr @call.threads(ptr %record)
  %limit64 = load i64, ptr %limit_at, align 8
  %limit = trunc i64 %limit64 to i32
  %available = call i32 @hlojit_pool_threads()
  %is_unlimited = icmp eq i32 %limit, 0
  %fewer = call i32 @llvm.smin.i32(i32 %limit, i32 %available)
  %threads = select i1 %is_unlimited, i32 %available, i32 %fewer
  %c_threads = call ptr @context.threads(ptr %context)
  store i32 %threads, ptr %c_threads, align 4
  %environment_at = call ptr @context.float_environment(ptr %context)
  %environment = call i64 @float_environment.enter()
  store i64 %environment, ptr %environment_at, align 8
  %entry_at = call ptr @call.entry(ptr %record)
  %program = load ptr, ptr %entry_at, align 8
  %returned = call i32 %program(ptr %context, ptr %slots)
  ; What the hook of polls ran may have changed it.
  %callers = load i64, ptr %environment_at, align 8
  call void @float_environment.leave(i64 %callers)
  br i1 %no_arena, label %finish, label %free
free:
  call void @hlojit_release(ptr %arena)
  br label %finish

finish:
  ; An error in the context counts even if the program returned 0: a kernel may have reported it.
  %error_at = call ptr @context.error(ptr %context)
  %error = load i32, ptr %error_at, align 4
  %has_error = icmp ne i32 %error, 0
  %status = select i1 %has_error, i32 %error, i32 %returned
  ret i32 %status
}

; The caller's floating-point environment while its own code - a signal handler - runs in the midst of a program, and the
; program's again.  Only for the thread that made the call.
define void @hlojit_leave_program(ptr %context) {
  %environment_at = call ptr @context.float_environment(ptr %context)
  %environment = load i64, ptr %environment_at, align 8
  call void @float_environment.leave(i64 %environment)
  ret void
}

define void @hlojit_enter_program(ptr %context) {
  %environment_at = call ptr @context.float_environment(ptr %context)
  %environment = call i64 @float_environment.enter()
  store i64 %environment, ptr %environment_at, align 8
  ret void
}

; i32 hlojit_execute_beside(ptr context, ptr function, ptr slots, ptr cells): run a part of a host program on a thread that
; shares no work, with a context of its own.  Returns a status.
define i32 @hlojit_execute_beside(ptr %context, ptr %function, ptr %slots, ptr %cells) {
  %environment = call i64 @float_environment.enter()
  %returned = call i32 %function(ptr %context, ptr %slots, ptr %cells)
  call void @float_environment.leave(i64 %environment)
  %error_at = call ptr @context.error(ptr %context)
  %error = load i32, ptr %error_at, align 4
  %has_error = icmp ne i32 %error, 0
  %status = select i1 %has_error, i32 %error, i32 %returned
  ret i32 %status
}

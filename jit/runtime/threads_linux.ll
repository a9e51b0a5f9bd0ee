; The thread pool: fork-join for Linux.
;
; One word, the ticket, publishes a launch and hands out its ranges:
;
;     generation (32 bits) | ranges (16 bits) | next range (16 bits)
;
; Adding one to it claims a range.  Since the word carries the number of ranges, a worker that comes late, when the next
; launch has already been published, sees from the word alone whether its claim is valid and for which launch; and a
; launch with a valid claim cannot end before the claimed range is done, so the description of the launch (@job.*) stays
; unchanged while somebody works from it.
;
; Workers spin for some microseconds after their last range and then sleep in a futex on the generation.  The owner, which
; is the thread that launches, takes part, and waits on @pool.done.  One launch runs at a time: a launch that finds the pool
; busy (another Python thread, or a kernel inside a kernel) runs on its own thread alone.

@pool.ticket  = internal global i64 0, align 128
@pool.done    = internal global i32 0, align 128   ; ranges of the launch that are finished
@pool.waiting = internal global i32 0, align 128   ; not 0: the owner sleeps on @pool.done
@pool.asleep  = internal global i32 0, align 128   ; workers that sleep on the generation
@pool.busy    = internal global i32 0, align 128   ; not 0: a launch is running
@pool.active  = internal global i32 0, align 128   ; workers that may take part
@pool.stop    = internal global i32 0, align 4
@pool.started = internal global i32 0, align 4     ; workers that exist
@pool.spin    = internal global i64 100000, align 8   ; ticks that a worker spins for
@pool.threads = internal global [256 x i64] zeroinitializer, align 64   ; their pthread_t

@job.kernel  = internal global ptr null, align 128
@job.buffers = internal global ptr null
@job.context = internal global ptr null
@job.tasks   = internal global i64 0
@job.size    = internal global i64 0    ; tasks per range
@job.workers = internal global i32 0    ; workers that may take part in this launch

@pool.name = private constant [7 x i8] c"hlojit\00"

declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @prctl(i32, ...)
declare i32 @sched_yield()
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)

; ------------------------------------------------------------------------------------------------ waiting and waking

; FUTEX_WAIT_PRIVATE (128): sleep while the word holds `value`, for ten milliseconds at most if `timed`.
define private void @futex.wait(ptr %word, i32 %value, i1 %timed) {
entry:
  %duration = alloca { i64, i64 }, align 8
  %nanoseconds_at = getelementptr inbounds { i64, i64 }, ptr %duration, i32 0, i32 1
  store i64 0, ptr %duration, align 8
  store i64 10000000, ptr %nanoseconds_at, align 8
  %timeout = select i1 %timed, ptr %duration, ptr null
  %number = load i64, ptr @syscall.futex, align 8
  %status = call i64 (i64, ...) @syscall(i64 %number, ptr %word, i32 128, i32 %value, ptr %timeout, ptr null, i32 0)
  ret void
}

; FUTEX_WAKE_PRIVATE (129): wake at most `count` sleepers.
define private void @futex.wake(ptr %word, i32 %count) {
  %number = load i64, ptr @syscall.futex, align 8
  %status = call i64 (i64, ...) @syscall(i64 %number, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

; One turn of a spinning loop: at first only a pause; after a sixteenth of the patience let other threads have the processor.
; On a machine with more running threads than processors the one that is waited for may be waiting for this processor.
define private void @pause(i64 %spent, i64 %patience) alwaysinline {
entry:
  %soon = lshr i64 %patience, 4
  %is_short = icmp ult i64 %spent, %soon
  br i1 %is_short, label %relax, label %yield
relax:
  call void @relax()
  ret void
yield:
  %status = call i32 @sched_yield()
  ret void
}

; --------------------------------------------------------------------------------------------------------- the owner

define private void @parallel(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain) {
entry:
  %threads_at = call ptr @context.threads(ptr %context)
  %threads = load i32, ptr %threads_at, align 4
  %is_alone = icmp sle i32 %threads, 1
  br i1 %is_alone, label %alone, label %look
look:
  %busy = load atomic i32, ptr @pool.busy monotonic, align 4
  %is_busy = icmp ne i32 %busy, 0
  br i1 %is_busy, label %alone, label %try
try:
  %exchange = cmpxchg ptr @pool.busy, i32 0, i32 1 acquire monotonic
  %is_mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %is_mine, label %launch, label %alone
alone:
  call void @serial(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain)
  ret void
launch:
  call void @launch(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain, i32 %threads)
  store atomic i32 0, ptr @pool.busy release, align 4
  ret void
}

define private void @launch(ptr %context, ptr %kernel, ptr %buffers, i64 %tasks, i64 %grain, i32 %threads) {
entry:
  %active = load atomic i32, ptr @pool.active monotonic, align 4
  %started = load i32, ptr @pool.started, align 4
  %complete = icmp sge i32 %started, %active
  br i1 %complete, label %publish, label %start
start:
  call void @pool.start(i32 %active)
  br label %publish

publish:
  ; At most 2^14 ranges, so that claims beyond the last range (one per worker) never carry into the number of ranges.
  %tasks_up = add i64 %tasks, %grain
  %tasks_up1 = sub i64 %tasks_up, 1
  %wanted = udiv i64 %tasks_up1, %grain
  %is_many = icmp ugt i64 %wanted, 16384
  %spread = lshr i64 %tasks, 14
  %spread1 = add i64 %spread, 1
  %size = select i1 %is_many, i64 %spread1, i64 %grain
  %rounded = add i64 %tasks, %size
  %rounded1 = sub i64 %rounded, 1
  %exact = udiv i64 %rounded1, %size
  %ranges = select i1 %is_many, i64 %exact, i64 %wanted

  %others = sub i32 %threads, 1
  store ptr %kernel, ptr @job.kernel, align 8
  store ptr %buffers, ptr @job.buffers, align 8
  store ptr %context, ptr @job.context, align 8
  store i64 %tasks, ptr @job.tasks, align 8
  store i64 %size, ptr @job.size, align 8
  store atomic i32 %others, ptr @job.workers monotonic, align 4
  store atomic i32 0, ptr @pool.done monotonic, align 4
  %launches_at = call ptr @context.launches(ptr %context)
  %launches = load i64, ptr %launches_at, align 8
  %launches1 = add i64 %launches, 1
  store i64 %launches1, ptr %launches_at, align 8

  %old = load atomic i64, ptr @pool.ticket monotonic, align 8
  %generation = lshr i64 %old, 32
  %generation1 = add i64 %generation, 1
  %high = shl i64 %generation1, 32
  %middle = shl i64 %ranges, 16
  %ticket = or disjoint i64 %high, %middle
  store atomic i64 %ticket, ptr @pool.ticket seq_cst, align 8

  ; A worker announces itself in @pool.asleep before it looks at the ticket for the last time, both sequentially
  ; consistent: either it sees the new ticket or we see it asleep.
  %asleep = load atomic i32, ptr @pool.asleep seq_cst, align 4
  %some_asleep = icmp ne i32 %asleep, 0
  br i1 %some_asleep, label %wake, label %work
wake:
  ; One range is ours.  With a limit below the pool's size the wrong workers might be woken, so wake all of them.
  %ranges32 = trunc i64 %ranges to i32
  %helpers = sub i32 %ranges32, 1
  %is_limited = icmp slt i32 %others, %active
  %count = select i1 %is_limited, i32 2147483647, i32 %helpers
  %generation_at = call ptr @pool.generation()
  call void @futex.wake(ptr %generation_at, i32 %count)
  br label %work

work:
  %mine = call i32 @claim(i1 true)
  %all = trunc i64 %ranges to i32
  %before = atomicrmw add ptr @pool.done, i32 %mine acq_rel
  %now = add i32 %before, %mine
  %finished = icmp eq i32 %now, %all
  br i1 %finished, label %done, label %wait
wait:
  call void @join(ptr %context, i32 %all)
  br label %done
done:
  ret void
}

; The upper half of the ticket (little-endian), which changes with every launch.
define private ptr @pool.generation() alwaysinline {
  %at = getelementptr inbounds i8, ptr @pool.ticket, i64 4
  ret ptr %at
}

; Claim ranges of the running launch and do them until none is left; returns how many.
define private i32 @claim(i1 %is_owner) alwaysinline {
entry:
  br label %next
next:
  %count = phi i32 [ 0, %entry ], [ %count1, %polled ]
  %ticket = atomicrmw add ptr @pool.ticket, i64 1 acq_rel
  %range = and i64 %ticket, 65535
  %shifted = lshr i64 %ticket, 16
  %ranges = and i64 %shifted, 65535
  %is_valid = icmp ult i64 %range, %ranges
  br i1 %is_valid, label %look, label %none
look:
  %context = load ptr, ptr @job.context, align 8
  %cancel_at = call ptr @context.cancel(ptr %context)
  %cancel = load atomic i32, ptr %cancel_at monotonic, align 4
  %is_cancelled = icmp ne i32 %cancel, 0
  br i1 %is_cancelled, label %done, label %run
run:
  %kernel = load ptr, ptr @job.kernel, align 8
  %buffers = load ptr, ptr @job.buffers, align 8
  %tasks = load i64, ptr @job.tasks, align 8
  %size = load i64, ptr @job.size, align 8
  %begin = mul i64 %range, %size
  %limit = add i64 %begin, %size
  %end = call i64 @llvm.umin.i64(i64 %limit, i64 %tasks)
  call void %kernel(ptr %context, ptr %buffers, i64 %begin, i64 %end)
  br label %done
done:
  %count1 = add i32 %count, 1
  br i1 %is_owner, label %poll, label %polled
poll:
  %status = call i32 @hlojit_poll(ptr %context)
  br label %polled
polled:
  br label %next
none:
  ret i32 %count
}

; Wait until all ranges are done: spin, then sleep; look for Ctrl-C every ten milliseconds.
define private void @join(ptr %context, i32 %all) noinline {
entry:
  %start = call i64 @ticks()
  %patience = load i64, ptr @pool.spin, align 8
  br label %spin
spin:
  %done = load atomic i32, ptr @pool.done acquire, align 4
  %finished = icmp eq i32 %done, %all
  br i1 %finished, label %out, label %clock
clock:
  %now = call i64 @ticks()
  %spent = sub i64 %now, %start
  call void @pause(i64 %spent, i64 %patience)
  %again = icmp ult i64 %spent, %patience
  br i1 %again, label %spin, label %sleep
sleep:
  store atomic i32 1, ptr @pool.waiting seq_cst, align 4
  %seen = load atomic i32, ptr @pool.done seq_cst, align 4
  %ready = icmp eq i32 %seen, %all
  br i1 %ready, label %awake, label %wait
wait:
  call void @futex.wait(ptr @pool.done, i32 %seen, i1 true)
  %status = call i32 @hlojit_poll(ptr %context)
  br label %sleep
awake:
  store atomic i32 0, ptr @pool.waiting monotonic, align 4
  br label %out
out:
  ret void
}

; ------------------------------------------------------------------------------------------------------- the workers

define private ptr @worker(ptr %argument) {
entry:
  %number64 = ptrtoint ptr %argument to i64
  %number = trunc i64 %number64 to i32
  %environment = call i64 @float_environment.enter()
  %named = call i32 (i32, ...) @prctl(i32 15, ptr @pool.name, i64 0, i64 0, i64 0)   ; PR_SET_NAME
  br label %idle

idle:
  %start = call i64 @ticks()
  br label %spin
spin:
  %stop = load atomic i32, ptr @pool.stop monotonic, align 4
  %is_stopped = icmp ne i32 %stop, 0
  br i1 %is_stopped, label %exit, label %admitted
admitted:
  %active = load atomic i32, ptr @pool.active monotonic, align 4
  %is_admitted = icmp slt i32 %number, %active
  br i1 %is_admitted, label %look, label %retire
retire:
  ; The pool was made smaller: sleep until its size changes again.
  call void @futex.wait(ptr @pool.active, i32 %active, i1 false)
  br label %idle
look:
  %ticket = load atomic i64, ptr @pool.ticket monotonic, align 8
  %range = and i64 %ticket, 65535
  %shifted = lshr i64 %ticket, 16
  %ranges = and i64 %shifted, 65535
  %is_open = icmp ult i64 %range, %ranges
  br i1 %is_open, label %limit, label %rest
limit:
  %workers = load atomic i32, ptr @job.workers monotonic, align 4
  %is_wanted = icmp slt i32 %number, %workers
  br i1 %is_wanted, label %work, label %rest
work:
  %count = call i32 @claim(i1 false)
  %is_none = icmp eq i32 %count, 0
  br i1 %is_none, label %rest, label %report
report:
  %before = atomicrmw add ptr @pool.done, i32 %count seq_cst
  %waiting = load atomic i32, ptr @pool.waiting seq_cst, align 4
  %is_waiting = icmp ne i32 %waiting, 0
  br i1 %is_waiting, label %call_owner, label %idle
call_owner:
  call void @futex.wake(ptr @pool.done, i32 1)
  br label %idle
rest:
  %now = call i64 @ticks()
  %spent = sub i64 %now, %start
  %patience = load atomic i64, ptr @pool.spin monotonic, align 8
  call void @pause(i64 %spent, i64 %patience)
  %again = icmp ult i64 %spent, %patience
  br i1 %again, label %spin, label %sleep

sleep:
  %seen_generation64 = lshr i64 %ticket, 32
  %seen_generation = trunc i64 %seen_generation64 to i32
  %announce = atomicrmw add ptr @pool.asleep, i32 1 seq_cst
  %latest = load atomic i64, ptr @pool.ticket seq_cst, align 8
  %latest_generation = lshr i64 %latest, 32
  %is_same = icmp eq i64 %latest_generation, %seen_generation64
  br i1 %is_same, label %futex, label %awake
futex:
  %generation_at = call ptr @pool.generation()
  call void @futex.wait(ptr %generation_at, i32 %seen_generation, i1 false)
  br label %awake
awake:
  %leave = atomicrmw sub ptr @pool.asleep, i32 1 seq_cst
  br label %idle

exit:
  ret ptr null
}

; Start workers until there are `wanted`; only for the owner.  If the system refuses one, the pool stays smaller.
define private void @pool.start(i32 %wanted) noinline cold {
entry:
  ; Signals are for Python's threads: workers start with all of them blocked (SIG_SETMASK = 2).
  %all = alloca [128 x i8], align 8
  %previous = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %masked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %previous)
  br label %next
next:
  %number = load i32, ptr @pool.started, align 4
  %more = icmp slt i32 %number, %wanted
  br i1 %more, label %create, label %done
create:
  %number64 = zext i32 %number to i64
  %argument = inttoptr i64 %number64 to ptr
  %handle_at = getelementptr inbounds [256 x i64], ptr @pool.threads, i64 0, i64 %number64
  %status = call i32 @pthread_create(ptr %handle_at, ptr null, ptr @worker, ptr %argument)
  %is_refused = icmp ne i32 %status, 0
  br i1 %is_refused, label %refused, label %created
created:
  %number1 = add i32 %number, 1
  store i32 %number1, ptr @pool.started, align 4
  br label %next
refused:
  store atomic i32 %number, ptr @pool.active monotonic, align 4
  br label %done
done:
  %restored = call i32 @pthread_sigmask(i32 2, ptr %previous, ptr null)
  ret void
}

; ------------------------------------------------------------------------------------------------------- for Python

; Set the number of threads, the calling one included (1 to 257).  A running launch keeps what it has.
define void @hlojit_pool_set_threads(i32 %threads) {
  %others = sub i32 %threads, 1
  %low = call i32 @llvm.smax.i32(i32 %others, i32 0)
  %active = call i32 @llvm.smin.i32(i32 %low, i32 256)
  store atomic i32 %active, ptr @pool.active seq_cst, align 4
  call void @futex.wake(ptr @pool.active, i32 2147483647)
  ret void
}

define i32 @hlojit_pool_threads() {
  %active = load atomic i32, ptr @pool.active monotonic, align 4
  %threads = add i32 %active, 1
  ret i32 %threads
}

define i32 @hlojit_pool_started() {
  %started = load atomic i32, ptr @pool.started monotonic, align 4
  ret i32 %started
}

define void @hlojit_pool_set_spin(i64 %ticks) {
  store atomic i64 %ticks, ptr @pool.spin monotonic, align 8
  ret void
}

; In a child after fork: the workers are gone, and a launch that was running in another thread of the parent is too.
define void @hlojit_pool_reset() {
  store atomic i64 0, ptr @pool.ticket seq_cst, align 8
  store atomic i32 0, ptr @pool.done seq_cst, align 4
  store atomic i32 0, ptr @pool.waiting seq_cst, align 4
  store atomic i32 0, ptr @pool.asleep seq_cst, align 4
  store atomic i32 0, ptr @pool.busy seq_cst, align 4
  store atomic i32 0, ptr @pool.started seq_cst, align 4
  ret void
}

; End the workers before the process ends.  If a launch is still running (a daemon thread), leave them.
define void @hlojit_pool_shutdown() {
entry:
  %exchange = cmpxchg ptr @pool.busy, i32 0, i32 1 acquire monotonic
  %is_mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %is_mine, label %stop, label %done
stop:
  store atomic i32 1, ptr @pool.stop seq_cst, align 4
  ; A new generation without ranges wakes who sleeps on it.
  %ticket = load atomic i64, ptr @pool.ticket seq_cst, align 8
  %generation = lshr i64 %ticket, 32
  %generation1 = add i64 %generation, 1
  %empty = shl i64 %generation1, 32
  store atomic i64 %empty, ptr @pool.ticket seq_cst, align 8
  %generation_at = call ptr @pool.generation()
  call void @futex.wake(ptr %generation_at, i32 2147483647)
  ; A retired worker looks at the size of the pool only: change it.
  store atomic i32 256, ptr @pool.active seq_cst, align 4
  call void @futex.wake(ptr @pool.active, i32 2147483647)
  %started = load i32, ptr @pool.started, align 4
  br label %next
next:
  %number = phi i32 [ 0, %stop ], [ %number1, %join ]
  %more = icmp slt i32 %number, %started
  br i1 %more, label %join, label %joined
join:
  %number64 = zext i32 %number to i64
  %handle_at = getelementptr inbounds [256 x i64], ptr @pool.threads, i64 0, i64 %number64
  %handle = load i64, ptr %handle_at, align 8
  %status = call i32 @pthread_join(i64 %handle, ptr null)
  %number1 = add i32 %number, 1
  br label %next
joined:
  ; Whoever still calls (exit handlers, daemon threads) runs serially: the pool stays busy for ever.
  store i32 0, ptr @pool.started, align 4
  br label %done
done:
  ret void
}

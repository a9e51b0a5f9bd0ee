; What simulated kernels call: blocks and their threads, meetings, and the checks of accesses.
;
; A thread that waits is a coroutine (LLVM's switched-resume form: the first word of its frame is the address of the function
; that resumes it).  Frames, shared memory and all that is noted about it belong to one call of a kernel's function, which
; frees them however it ends; coroutines own nothing, so that they need not be destroyed.

declare ptr @hlojit_allocate(i64)
declare void @hlojit_release(ptr)
declare i32 @hlojit_poll(ptr)
declare void @hlojit_fail(ptr, i32, i64, i64)
declare void @hlojit_parallel_for(ptr, ptr, ptr, i64, i64)
declare void @hlojit_leave_python(ptr)
declare void @hlojit_enter_python(ptr)
declare void @hlojit_leave_program(ptr)
declare void @hlojit_enter_program(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; ------------------------------------------------------------------------------------------------------------ launches

; Run a kernel over its blocks, on as many threads as the context says.  Called with the GIL held, which it releases.
define i32 @hlojit_simulator_launch(ptr %context, ptr %kernel, ptr %buffers, i64 %blocks, i64 %grain) {
  call void @hlojit_leave_python(ptr %context)
  call void @hlojit_enter_program(ptr %context)
  call void @hlojit_parallel_for(ptr %context, ptr %kernel, ptr %buffers, i64 %blocks, i64 %grain)
  call void @hlojit_leave_program(ptr %context)
  call void @hlojit_enter_python(ptr %context)
  %error_at = call ptr @context.error(ptr %context)
  %error = load i32, ptr %error_at, align 4
  ret i32 %error
}

; The record of the blocks that one call runs, or null: the launch does not fit the kernel, or there is no memory.
define ptr @hlojit_simulator_open(ptr %context, ptr %buffers, i32 %threads, i32 %warp_shift, i64 %shared_bytes) {
entry:
  %launch_at = call ptr @context.user(ptr %context)
  %launch = load ptr, ptr %launch_at, align 8
  %given_at = call ptr @launch.threads(ptr %launch)
  %given = load i32, ptr %given_at, align 4
  %is_other = icmp ne i32 %given, %threads
  %given_shared_at = call ptr @launch.shared_bytes(ptr %launch)
  %given_shared = load i64, ptr %given_shared_at, align 8
  %is_less = icmp ult i64 %given_shared, %shared_bytes
  %misfit = or i1 %is_other, %is_less
  br i1 %misfit, label %refuse, label %reserve
refuse:
  call void @fault(ptr %context, ptr %launch, i32 6, i64 0, i32 0, i32 %threads, i64 0, i32 0, i32 0, i64 %shared_bytes)
  ret ptr null

reserve:
  ; One piece of memory: this record (256 bytes), the lanes, the warps' clocks, the shared memory.
  %threads64 = zext i32 %threads to i64
  %lane_bytes = mul i64 %threads64, LANE_BYTES
  %clock_bytes = shl i64 %threads64, 3
  %clocks_begin = add i64 %lane_bytes, 256
  %clocks_end = add i64 %clocks_begin, %clock_bytes
  %rounded = add i64 %clocks_end, 255
  %shared_begin = and i64 %rounded, -256
  %end = add i64 %shared_begin, %shared_bytes
  %bytes = add i64 %end, 8   ; it is filled by eight bytes
  %block = call ptr @hlojit_allocate(i64 %bytes)
  %is_refused = icmp eq ptr %block, null
  br i1 %is_refused, label %exhausted, label %fill
exhausted:
  call void @hlojit_fail(ptr %context, i32 2, i64 %bytes, i64 0)
  ret ptr null

fill:
  call void @llvm.memset.p0.i64(ptr align 8 %block, i8 0, i64 %clocks_end, i1 false)
  %lanes = getelementptr i8, ptr %block, i64 256
  %clocks = getelementptr i8, ptr %block, i64 %clocks_begin
  %shared = getelementptr i8, ptr %block, i64 %shared_begin
  %context_at = call ptr @block.context(ptr %block)
  store ptr %context, ptr %context_at, align 8
  %b_launch = call ptr @block.launch(ptr %block)
  store ptr %launch, ptr %b_launch, align 8
  %b_buffers = call ptr @block.buffers(ptr %block)
  store ptr %buffers, ptr %b_buffers, align 8
  %b_shared = call ptr @block.shared(ptr %block)
  store ptr %shared, ptr %b_shared, align 8
  %b_shared_bytes = call ptr @block.shared_bytes(ptr %block)
  store i64 %shared_bytes, ptr %b_shared_bytes, align 8
  %b_lanes = call ptr @block.lanes(ptr %block)
  store ptr %lanes, ptr %b_lanes, align 8
  %b_clocks = call ptr @block.clocks(ptr %block)
  store ptr %clocks, ptr %b_clocks, align 8
  %b_threads = call ptr @block.threads(ptr %block)
  store i32 %threads, ptr %b_threads, align 4
  %b_shift = call ptr @block.warp_shift(ptr %block)
  store i32 %warp_shift, ptr %b_shift, align 4
  %has_shared = icmp ne i64 %shared_bytes, 0
  br i1 %has_shared, label %cells, label %done

cells:
  ; Three words for every byte, of which those of elements' first bytes are used.
  %cell_bytes = mul i64 %shared_bytes, 24
  %cells_memory = call ptr @hlojit_allocate(i64 %cell_bytes)
  %no_cells = icmp eq ptr %cells_memory, null
  br i1 %no_cells, label %give_up, label %clear
give_up:
  call void @hlojit_fail(ptr %context, i32 2, i64 %cell_bytes, i64 0)
  call void @hlojit_release(ptr %block)
  ret ptr null
clear:
  call void @llvm.memset.p0.i64(ptr align 8 %cells_memory, i8 0, i64 %cell_bytes, i1 false)
  %b_cells = call ptr @block.cells(ptr %block)
  store ptr %cells_memory, ptr %b_cells, align 8
  br label %done
done:
  ret ptr %block
}

define void @hlojit_simulator_close(ptr %block) {
entry:
  %frames_at = call ptr @block.frames(ptr %block)
  %frames = load ptr, ptr %frames_at, align 8
  call void @release(ptr %frames)
  %cells_at = call ptr @block.cells(ptr %block)
  %cells = load ptr, ptr %cells_at, align 8
  call void @release(ptr %cells)
  call void @hlojit_release(ptr %block)
  ret void
}

define private void @release(ptr %memory) {
entry:
  %is_none = icmp eq ptr %memory, null
  br i1 %is_none, label %done, label %free
free:
  call void @hlojit_release(ptr %memory)
  br label %done
done:
  ret void
}

; Make the record that of a block; false: stop, the launch is cancelled.
define i1 @hlojit_simulator_begin(ptr %block, i64 %number) {
entry:
  %context_at = call ptr @block.context(ptr %block)
  %context = load ptr, ptr %context_at, align 8
  %status = call i32 @hlojit_poll(ptr %context)
  %is_cancelled = icmp ne i32 %status, 0
  br i1 %is_cancelled, label %stop, label %go
go:
  %number_at = call ptr @block.number(ptr %block)
  store i64 %number, ptr %number_at, align 8
  call void @pass_barrier(ptr %block)
  %time_at = call ptr @block.time(ptr %block)
  %time = load i64, ptr %time_at, align 8
  %start_at = call ptr @block.start_time(ptr %block)
  store i64 %time, ptr %start_at, align 8
  %shared_at = call ptr @block.shared(ptr %block)
  %shared = load ptr, ptr %shared_at, align 8
  %bytes_at = call ptr @block.shared_bytes(ptr %block)
  %bytes = load i64, ptr %bytes_at, align 8
  %has_shared = icmp ne i64 %bytes, 0
  br i1 %has_shared, label %fill, label %done
fill:
  ; What nobody has written is a NaN in every float format with infinities, and an odd integer.
  %at = phi i64 [ 0, %go ], [ %next, %fill ]
  %place = getelementptr inbounds i8, ptr %shared, i64 %at
  store i64 -1407396358717446, ptr %place, align 8   ; 0xFFFAFFFAFFFAFFFA
  %next = add nuw i64 %at, 8
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %fill, label %done
done:
  ret i1 true
stop:
  ret i1 false
}

; Everything before now is ordered with everything after, for all threads of the block.
define private void @pass_barrier(ptr %block) {
entry:
  %time_at = call ptr @block.time(ptr %block)
  %old = load i64, ptr %time_at, align 8
  %time = add i64 %old, 1
  store i64 %time, ptr %time_at, align 8
  %barrier_at = call ptr @block.barrier_time(ptr %block)
  store i64 %time, ptr %barrier_at, align 8
  %warps = call i32 @warps(ptr %block)
  %clocks_at = call ptr @block.clocks(ptr %block)
  %clocks = load ptr, ptr %clocks_at, align 8
  br label %warp
warp:
  %number = phi i32 [ 0, %entry ], [ %next, %warp ]
  %place = getelementptr inbounds i64, ptr %clocks, i32 %number
  store i64 %time, ptr %place, align 8
  %next = add nuw nsw i32 %number, 1
  %more = icmp ult i32 %next, %warps
  br i1 %more, label %warp, label %done
done:
  ret void
}

define private i32 @warps(ptr %block) alwaysinline {
  %threads_at = call ptr @block.threads(ptr %block)
  %threads = load i32, ptr %threads_at, align 4
  %shift_at = call ptr @block.warp_shift(ptr %block)
  %shift = load i32, ptr %shift_at, align 4
  %last = sub i32 %threads, 1
  %whole = lshr i32 %last, %shift
  %warps = add i32 %whole, 1
  ret i32 %warps
}

; ------------------------------------------------------------------------------------------------------------- threads

define private ptr @lane(ptr %block, i32 %thread) alwaysinline {
  %lanes_at = call ptr @block.lanes(ptr %block)
  %lanes = load ptr, ptr %lanes_at, align 8
  %thread64 = zext i32 %thread to i64
  %offset = mul i64 %thread64, LANE_BYTES
  %lane = getelementptr inbounds i8, ptr %lanes, i64 %offset
  ret ptr %lane
}

define private i32 @meeting(ptr %block, i32 %thread) alwaysinline {
  %lane = call ptr @lane(ptr %block, i32 %thread)
  %meeting_at = call ptr @lane.meeting(ptr %lane)
  %meeting = load i32, ptr %meeting_at, align 4
  ret i32 %meeting
}

define private i1 @is_stopped(ptr %block) alwaysinline {
  %stopped_at = call ptr @block.stopped(ptr %block)
  %stopped = load i32, ptr %stopped_at, align 4
  %is_stopped = icmp ne i32 %stopped, 0
  ret i1 %is_stopped
}

; Memory for the frame of a thread's coroutine, or null; all threads of a kernel need the same.
define ptr @hlojit_simulator_frame(ptr %block, i64 %bytes, i32 %thread) {
entry:
  %frames_at = call ptr @block.frames(ptr %block)
  %frames = load ptr, ptr %frames_at, align 8
  %size_at = call ptr @block.frame_bytes(ptr %block)
  %is_first = icmp eq ptr %frames, null
  br i1 %is_first, label %reserve, label %place
reserve:
  %up = add i64 %bytes, 63
  %rounded = and i64 %up, -64
  %threads_at = call ptr @block.threads(ptr %block)
  %threads = load i32, ptr %threads_at, align 4
  %threads64 = zext i32 %threads to i64
  %all = mul i64 %threads64, %rounded
  %reserved = call ptr @hlojit_allocate(i64 %all)
  store ptr %reserved, ptr %frames_at, align 8
  store i64 %rounded, ptr %size_at, align 8
  %is_refused = icmp eq ptr %reserved, null
  br i1 %is_refused, label %exhausted, label %place
exhausted:
  %context_at = call ptr @block.context(ptr %block)
  %context = load ptr, ptr %context_at, align 8
  call void @hlojit_fail(ptr %context, i32 2, i64 %all, i64 0)
  %stopped_at = call ptr @block.stopped(ptr %block)
  store i32 1, ptr %stopped_at, align 4
  ret ptr null
place:
  %base = phi ptr [ %frames, %entry ], [ %reserved, %reserve ]
  %size = load i64, ptr %size_at, align 8
  %thread64 = zext i32 %thread to i64
  %offset = mul i64 %thread64, %size
  %frame = getelementptr inbounds i8, ptr %base, i64 %offset
  ret ptr %frame
}

; Run the threads of a block, coroutines made by `start`, to their ends.
define void @hlojit_simulator_run(ptr %block, ptr %start) {
entry:
  %context_at = call ptr @block.context(ptr %block)
  %context = load ptr, ptr %context_at, align 8
  %buffers_at = call ptr @block.buffers(ptr %block)
  %buffers = load ptr, ptr %buffers_at, align 8
  %threads_at = call ptr @block.threads(ptr %block)
  %threads = load i32, ptr %threads_at, align 4
  %warps = call i32 @warps(ptr %block)
  br label %create
create:
  %thread = phi i32 [ 0, %entry ], [ %following, %created ]
  %lane = call ptr @lane(ptr %block, i32 %thread)
  %turn_at = call ptr @lane.turn(ptr %lane)
  store i32 0, ptr %turn_at, align 4
  %handle = call ptr %start(ptr %context, ptr %block, ptr %buffers, i32 %thread)
  store ptr %handle, ptr %lane, align 8
  %is_stopped = call i1 @is_stopped(ptr %block)
  br i1 %is_stopped, label %done, label %created
created:
  %following = add nuw nsw i32 %thread, 1
  %more_threads = icmp ult i32 %following, %threads
  br i1 %more_threads, label %create, label %round

round:
  ; Every warp runs until its lanes wait for other warps, or have ended.
  br label %warp
warp:
  %number = phi i32 [ 0, %round ], [ %next_warp, %settled ]
  %is_well = call i1 @settle(ptr %block, i32 %number)
  br i1 %is_well, label %settled, label %done
settled:
  %next_warp = add nuw nsw i32 %number, 1
  %more_warps = icmp ult i32 %next_warp, %warps
  br i1 %more_warps, label %warp, label %meet

meet:
  %agreed = call i32 @agreed(ptr %block, i32 0, i32 %threads)
  %is_over = icmp sle i32 %agreed, 0
  br i1 %is_over, label %done, label %poll
poll:
  %status = call i32 @hlojit_poll(ptr %context)
  %is_cancelled = icmp ne i32 %status, 0
  br i1 %is_cancelled, label %done, label %pass
pass:
  call void @pass_barrier(ptr %block)
  %goes_on = call i1 @resume(ptr %block, i32 0, i32 %threads)
  br i1 %goes_on, label %round, label %done
done:
  ret void
}

; Where threads wait: the meeting of all of them, 0 if all have ended, -1 if they do not agree, which is a fault.
define private i32 @agreed(ptr %block, i32 %first, i32 %end) {
entry:
  %meeting = call i32 @meeting(ptr %block, i32 %first)
  br label %look
look:
  %thread = phi i32 [ %first, %entry ], [ %next, %same ]
  %other = call i32 @meeting(ptr %block, i32 %thread)
  %is_same = icmp eq i32 %other, %meeting
  br i1 %is_same, label %same, label %different
same:
  %next = add nuw nsw i32 %thread, 1
  %more = icmp ult i32 %next, %end
  br i1 %more, label %look, label %done
done:
  ret i32 %meeting
different:
  ; The one that waits is named first.
  %has_ended = icmp eq i32 %other, 0
  %waiting = select i1 %has_ended, i32 %meeting, i32 %other
  %waiter = select i1 %has_ended, i32 %first, i32 %thread
  %elsewhere = select i1 %has_ended, i32 %other, i32 %meeting
  %leaver = select i1 %has_ended, i32 %thread, i32 %first
  %site = lshr i32 %waiting, 2
  %other_site = lshr i32 %elsewhere, 2
  call void @fault_in(ptr %block, i32 4, i32 %site, i32 %waiter, i32 %other_site, i32 %leaver, i64 0)
  ret i32 -1
}

; Run the lanes of a warp until they are at a barrier of the block, or have ended; false after a fault.
define private i1 @settle(ptr %block, i32 %warp) {
entry:
  %shift_at = call ptr @block.warp_shift(ptr %block)
  %shift = load i32, ptr %shift_at, align 4
  %first = shl i32 %warp, %shift
  %width = shl i32 1, %shift
  %full_end = add i32 %first, %width
  %threads_at = call ptr @block.threads(ptr %block)
  %threads = load i32, ptr %threads_at, align 4
  %is_full = icmp ule i32 %full_end, %threads
  %end = select i1 %is_full, i32 %full_end, i32 %threads
  br label %look
look:
  %meeting = call i32 @agreed(ptr %block, i32 %first, i32 %end)
  %disagree = icmp slt i32 %meeting, 0
  br i1 %disagree, label %bad, label %which
which:
  %kind = and i32 %meeting, 3
  %is_ours = icmp uge i32 %kind, 2
  br i1 %is_ours, label %ours, label %good
ours:
  br i1 %is_full, label %complete, label %partial
partial:
  %site = lshr i32 %meeting, 2
  call void @fault_in(ptr %block, i32 5, i32 %site, i32 %first, i32 0, i32 %end, i64 0)
  ret i1 false
complete:
  %orders = icmp eq i32 %kind, 3
  br i1 %orders, label %tick, label %go
tick:
  %time_at = call ptr @block.time(ptr %block)
  %old = load i64, ptr %time_at, align 8
  %time = add i64 %old, 1
  store i64 %time, ptr %time_at, align 8
  %clocks_at = call ptr @block.clocks(ptr %block)
  %clocks = load ptr, ptr %clocks_at, align 8
  %clock = getelementptr inbounds i64, ptr %clocks, i32 %warp
  store i64 %time, ptr %clock, align 8
  br label %go
go:
  %goes_on = call i1 @resume(ptr %block, i32 %first, i32 %end)
  br i1 %goes_on, label %look, label %bad
good:
  ret i1 true
bad:
  ret i1 false
}

; Run threads to their next meeting; false after a fault.
define private i1 @resume(ptr %block, i32 %first, i32 %end) {
entry:
  br label %one
one:
  %thread = phi i32 [ %first, %entry ], [ %next, %fine ]
  %lane = call ptr @lane(ptr %block, i32 %thread)
  %handle = load ptr, ptr %lane, align 8
  %function = load ptr, ptr %handle, align 8
  call fastcc void %function(ptr %handle)
  %is_stopped = call i1 @is_stopped(ptr %block)
  br i1 %is_stopped, label %stop, label %fine
fine:
  %next = add nuw nsw i32 %thread, 1
  %more = icmp ult i32 %next, %end
  br i1 %more, label %one, label %done
done:
  ret i1 true
stop:
  ret i1 false
}

; The bits that the lanes of the thread's warp have put into their slots.
define i64 @hlojit_simulator_ballot(ptr %block, i32 %thread, i32 %turn) {
entry:
  %shift_at = call ptr @block.warp_shift(ptr %block)
  %shift = load i32, ptr %shift_at, align 4
  %warp = lshr i32 %thread, %shift
  %first = shl i32 %warp, %shift
  %width = shl i32 1, %shift
  br label %look
look:
  %number = phi i32 [ 0, %entry ], [ %next, %look ]
  %votes = phi i64 [ 0, %entry ], [ %votes1, %look ]
  %peer = add i32 %first, %number
  %lane = call ptr @lane(ptr %block, i32 %peer)
  %slots = call ptr @lane.slots(ptr %lane)
  %slot = getelementptr inbounds i8, ptr %slots, i32 %turn
  %word = load i32, ptr %slot, align 4
  %word64 = zext i32 %word to i64
  %number64 = zext i32 %number to i64
  %bit = shl i64 %word64, %number64
  %votes1 = or i64 %votes, %bit
  %next = add nuw nsw i32 %number, 1
  %more = icmp ult i32 %next, %width
  br i1 %more, label %look, label %done
done:
  ret i64 %votes1
}

; -------------------------------------------------------------------------------------------------------------- faults

; Note what went wrong, unless something has before, and cancel the launch.
define private void @fault(ptr %context, ptr %launch, i32 %kind, i64 %block, i32 %site, i32 %thread, i64 %other_block,
                           i32 %other_site, i32 %other_thread, i64 %offset) noinline cold {
entry:
  %exchange = cmpxchg ptr %launch, i32 0, i32 1 seq_cst seq_cst
  %is_first = extractvalue { i32, i1 } %exchange, 1
  br i1 %is_first, label %note, label %done
note:
  %kind_at = call ptr @launch.kind(ptr %launch)
  store i32 %kind, ptr %kind_at, align 4
  %site_at = call ptr @launch.site(ptr %launch)
  store i32 %site, ptr %site_at, align 4
  %other_site_at = call ptr @launch.other_site(ptr %launch)
  store i32 %other_site, ptr %other_site_at, align 4
  %thread_at = call ptr @launch.thread(ptr %launch)
  store i32 %thread, ptr %thread_at, align 4
  %other_thread_at = call ptr @launch.other_thread(ptr %launch)
  store i32 %other_thread, ptr %other_thread_at, align 4
  %block_at = call ptr @launch.block(ptr %launch)
  store i64 %block, ptr %block_at, align 8
  %other_block_at = call ptr @launch.other_block(ptr %launch)
  store i64 %other_block, ptr %other_block_at, align 8
  %offset_at = call ptr @launch.offset(ptr %launch)
  store i64 %offset, ptr %offset_at, align 8
  br label %done
done:
  call void @hlojit_fail(ptr %context, i32 3, i64 0, i64 0)
  ret void
}

; The same in a block, of which no thread runs on.
define private void @fault_in(ptr %block, i32 %kind, i32 %site, i32 %thread, i32 %other_site, i32 %other_thread, i64 %offset)
    noinline cold {
  %context_at = call ptr @block.context(ptr %block)
  %context = load ptr, ptr %context_at, align 8
  %launch_at = call ptr @block.launch(ptr %block)
  %launch = load ptr, ptr %launch_at, align 8
  %number_at = call ptr @block.number(ptr %block)
  %number = load i64, ptr %number_at, align 8
  call void @fault(ptr %context, ptr %launch, i32 %kind, i64 %number, i32 %site, i32 %thread, i64 %number,
                   i32 %other_site, i32 %other_thread, i64 %offset)
  %stopped_at = call ptr @block.stopped(ptr %block)
  store i32 1, ptr %stopped_at, align 4
  ret void
}

define void @hlojit_simulator_outside(ptr %block, i32 %thread, i32 %site, i64 %offset) noinline cold {
  call void @fault_in(ptr %block, i32 1, i32 %site, i32 %thread, i32 0, i32 0, i64 %offset)
  ret void
}

define void @hlojit_simulator_misaligned(ptr %block, i32 %thread, i32 %site, i64 %offset) noinline cold {
  call void @fault_in(ptr %block, i32 7, i32 %site, i32 %thread, i32 0, i32 0, i64 %offset)
  ret void
}

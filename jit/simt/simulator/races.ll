; Accesses that nothing orders.
;
; Time is a counter of the barriers that a block has passed, and of the times that lanes of one of its warps waited for each
; other.  Two accesses by threads of different warps are ordered if a barrier lies between them; by lanes of one warp, if that
; warp waited as well.  So an earlier access counts if its time is not before the last barrier (the warp's clock).
;
; ------------------------------------------------------------------------------------------------------- shared memory
;
; Every element of shared memory has three cells: who wrote it last, and the last readers of two different warps, which is
; enough to tell whether any reader is not the writer's.  An entry, 0 for nobody:
;
;     time (36 bits) | atomic | several | thread (10 bits) | site (16 bits)
;
; `several`: by this thread and others - of its warp; if atomic, of any - with nothing between them.

declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

define private i1 @counts(i64 %entry, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift) alwaysinline {
  %time = lshr i64 %entry, 28
  %who = call i32 @entry.thread(i64 %entry)
  %differs = xor i32 %who, %thread
  %other_warp = lshr i32 %differs, %shift
  %is_near = icmp eq i32 %other_warp, 0
  %flags = lshr i64 %entry, 26
  %flags2 = and i64 %flags, 3
  %is_anybody = icmp eq i64 %flags2, 3
  %is_far = xor i1 %is_near, true
  %by_barriers = or i1 %is_far, %is_anybody
  %since = select i1 %by_barriers, i64 %barrier_time, i64 %warp_time
  %is_recent = icmp uge i64 %time, %since
  %is_other = icmp ne i32 %differs, 0
  %several = trunc i64 %flags to i1
  %by_others = or i1 %is_other, %several
  %counts = and i1 %is_recent, %by_others
  ret i1 %counts
}

define private i32 @entry.thread(i64 %entry) alwaysinline {
  %shifted = lshr i64 %entry, 16
  %who64 = and i64 %shifted, 1023
  %who = trunc i64 %who64 to i32
  ret i32 %who
}

define private i1 @entry.is_atomic(i64 %entry) alwaysinline {
  %shifted = lshr i64 %entry, 27
  %is_atomic = trunc i64 %shifted to i1
  ret i1 %is_atomic
}

; Note an access to shared memory, `bytes` from `offset` on in elements of `size`; true if it races with an earlier one, which
; is a fault.  `use`: 0 load, 1 store, 2 atomic.
define i1 @hlojit_simulator_shared(ptr %block, i32 %thread, i32 %site, i64 %offset, i64 %bytes, i64 %size, i32 %use) {
entry:
  %cells_at = call ptr @block.cells(ptr %block)
  %cells = load ptr, ptr %cells_at, align 8
  %time_at = call ptr @block.time(ptr %block)
  %time = load i64, ptr %time_at, align 8
  %barrier_at = call ptr @block.barrier_time(ptr %block)
  %barrier_time = load i64, ptr %barrier_at, align 8
  %shift_at = call ptr @block.warp_shift(ptr %block)
  %shift = load i32, ptr %shift_at, align 4
  %warp = lshr i32 %thread, %shift
  %clocks_at = call ptr @block.clocks(ptr %block)
  %clocks = load ptr, ptr %clocks_at, align 8
  %clock = getelementptr inbounds i64, ptr %clocks, i32 %warp
  %warp_time = load i64, ptr %clock, align 8

  %time_bits = shl i64 %time, 28
  %thread64 = zext i32 %thread to i64
  %thread_bits = shl i64 %thread64, 16
  %site64 = zext i32 %site to i64
  %who_bits = or i64 %thread_bits, %site64
  %me = or i64 %time_bits, %who_bits
  %end = add i64 %offset, %bytes
  %some = icmp ult i64 %offset, %end
  br i1 %some, label %element, label %done

element:
  %at = phi i64 [ %offset, %entry ], [ %next, %noted ]
  %cell_offset = mul i64 %at, 24
  %cell = getelementptr inbounds i8, ptr %cells, i64 %cell_offset
  %reader1_at = getelementptr inbounds i8, ptr %cell, i64 8
  %reader2_at = getelementptr inbounds i8, ptr %cell, i64 16
  %writer = load i64, ptr %cell, align 8
  %reader1 = load i64, ptr %reader1_at, align 8
  %reader2 = load i64, ptr %reader2_at, align 8
  %written = call i1 @counts(i64 %writer, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  switch i32 %use, label %store [ i32 0, label %load
                                  i32 2, label %atomic ]

load:
  br i1 %written, label %race, label %read
read:
  %first_time = lshr i64 %reader1, 28
  %is_first = icmp ult i64 %first_time, %barrier_time
  br i1 %is_first, label %read_first, label %read_again
read_first:
  store i64 %me, ptr %reader1_at, align 8
  br label %noted
read_again:
  %is_mine = call i1 @is_near(i64 %reader1, i32 %thread, i32 %shift)
  br i1 %is_mine, label %join_first, label %read_second
join_first:
  %joined1 = call i64 @joined(i64 %reader1, i64 %me, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  store i64 %joined1, ptr %reader1_at, align 8
  br label %noted
read_second:
  %second_time = lshr i64 %reader2, 28
  %is_second = icmp ult i64 %second_time, %barrier_time
  %is_mine2 = call i1 @is_near(i64 %reader2, i32 %thread, i32 %shift)
  %joined2 = call i64 @joined(i64 %reader2, i64 %me, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  %kept2 = select i1 %is_mine2, i64 %joined2, i64 %reader2
  %new2 = select i1 %is_second, i64 %me, i64 %kept2
  store i64 %new2, ptr %reader2_at, align 8
  br label %noted

atomic:
  %was_atomic = call i1 @entry.is_atomic(i64 %writer)
  %was_plain = xor i1 %was_atomic, true
  %overwrites = and i1 %written, %was_plain
  br i1 %overwrites, label %race, label %atomic_readers
atomic_readers:
  %read1a = call i1 @counts(i64 %reader1, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  %read2a = call i1 @counts(i64 %reader2, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  %read_a = or i1 %read1a, %read2a
  br i1 %read_a, label %race, label %update
update:
  %me_atomic = or i64 %me, 134217728
  %me_several = or i64 %me_atomic, 67108864
  %new_writer = select i1 %written, i64 %me_several, i64 %me_atomic
  store i64 %new_writer, ptr %cell, align 8
  br label %noted

store:
  %read1 = call i1 @counts(i64 %reader1, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  %read2 = call i1 @counts(i64 %reader2, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  %is_read = or i1 %read1, %read2
  %used = or i1 %written, %is_read
  br i1 %used, label %race, label %write
write:
  store i64 %me, ptr %cell, align 8
  br label %noted

noted:
  %next = add i64 %at, %size
  %more = icmp ult i64 %next, %end
  br i1 %more, label %element, label %done
done:
  ret i1 false

race:
  ; The writer if it counts, else the reader that does.
  %first_counts = call i1 @counts(i64 %reader1, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  %reader = select i1 %first_counts, i64 %reader1, i64 %reader2
  %is_atomic_use = icmp eq i32 %use, 2
  %writer_is_atomic = call i1 @entry.is_atomic(i64 %writer)
  %both = and i1 %is_atomic_use, %writer_is_atomic
  %not_both = xor i1 %both, true
  %by_writer = and i1 %written, %not_both
  %other = select i1 %by_writer, i64 %writer, i64 %reader
  %other_thread = call i32 @entry.thread(i64 %other)
  %other_site64 = and i64 %other, 65535
  %other_site = trunc i64 %other_site64 to i32
  call void @fault_in(ptr %block, i32 2, i32 %site, i32 %thread, i32 %other_site, i32 %other_thread, i64 %at)
  ret i1 true
}

define private i1 @is_near(i64 %entry, i32 %thread, i32 %shift) alwaysinline {
  %who = call i32 @entry.thread(i64 %entry)
  %differs = xor i32 %who, %thread
  %other_warp = lshr i32 %differs, %shift
  %is_near = icmp eq i32 %other_warp, 0
  ret i1 %is_near
}

; The entry of a reader whose warp has read before.
define private i64 @joined(i64 %entry, i64 %me, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift) alwaysinline {
  %by_others = call i1 @counts(i64 %entry, i64 %barrier_time, i64 %warp_time, i32 %thread, i32 %shift)
  %several = or i64 %me, 67108864
  %joined = select i1 %by_others, i64 %several, i64 %me
  ret i64 %joined
}

; -------------------------------------------------------------------------------------------------- asynchronous copies
;
; A copy into shared memory is a store that goes on: until its thread waits for it, its cells say that it was written at the
; end of time, and by several, so that an access of anybody, the thread too, is a race, whatever barriers were passed.  When
; the thread waits, it is a store of now.  The thread's queue (records.COPIES_BYTES) keeps which copies are under way:
;
;     begun, done, groups, 0 (i64 each); then 128 times: offset, bytes, bytes of an element, group (i64 each)

; Make what was just noted as a store one that is under way; true if the queue is full, which is a fault.
define i1 @hlojit_simulator_copy(ptr %block, i32 %thread, i32 %site, ptr %queue, i64 %offset, i64 %bytes, i64 %size) {
entry:
  %begun = load i64, ptr %queue, align 8
  %done_at = getelementptr inbounds i8, ptr %queue, i64 8
  %done = load i64, ptr %done_at, align 8
  %under_way = sub i64 %begun, %done
  %is_full = icmp uge i64 %under_way, 128
  br i1 %is_full, label %full, label %add
full:
  call void @fault_in(ptr %block, i32 8, i32 %site, i32 %thread, i32 0, i32 0, i64 %offset)
  ret i1 true
add:
  %group_at = getelementptr inbounds i8, ptr %queue, i64 16
  %group = load i64, ptr %group_at, align 8
  %record = call ptr @copy.record(ptr %queue, i64 %begun)
  %r_bytes = getelementptr inbounds i8, ptr %record, i64 8
  %r_size = getelementptr inbounds i8, ptr %record, i64 16
  %r_group = getelementptr inbounds i8, ptr %record, i64 24
  store i64 %offset, ptr %record, align 8
  store i64 %bytes, ptr %r_bytes, align 8
  store i64 %size, ptr %r_size, align 8
  store i64 %group, ptr %r_group, align 8
  %more = add i64 %begun, 1
  store i64 %more, ptr %queue, align 8
  ; All bits of the time, and `several`.
  call void @copy.mark(ptr %block, i64 %offset, i64 %bytes, i64 %size, i64 -201326592)
  ret i1 false
}

define private ptr @copy.record(ptr %queue, i64 %number) alwaysinline {
  %slot = and i64 %number, 127
  %scaled = shl i64 %slot, 5
  %place = add i64 %scaled, 32
  %record = getelementptr inbounds i8, ptr %queue, i64 %place
  ret ptr %record
}

; Give the cells of a copy's elements another time and flags; thread and site stay.
define private void @copy.mark(ptr %block, i64 %offset, i64 %bytes, i64 %size, i64 %bits) {
entry:
  %cells_at = call ptr @block.cells(ptr %block)
  %cells = load ptr, ptr %cells_at, align 8
  %end = add i64 %offset, %bytes
  br label %element
element:
  %at = phi i64 [ %offset, %entry ], [ %next, %element ]
  %cell_offset = mul i64 %at, 24
  %cell = getelementptr inbounds i8, ptr %cells, i64 %cell_offset
  %old = load i64, ptr %cell, align 8
  %who = and i64 %old, 67108863
  %new = or i64 %who, %bits
  store i64 %new, ptr %cell, align 8
  %next = add i64 %at, %size
  %more = icmp ult i64 %next, %end
  br i1 %more, label %element, label %done
done:
  ret void
}

; What was begun since the last time is a group.
define void @hlojit_simulator_commit(ptr %queue) {
  %group_at = getelementptr inbounds i8, ptr %queue, i64 16
  %group = load i64, ptr %group_at, align 8
  %next = add i64 %group, 1
  store i64 %next, ptr %group_at, align 8
  ret void
}

; End all groups but the last `left` ones.
define void @hlojit_simulator_wait(ptr %block, i32 %thread, ptr %queue, i64 %left) {
entry:
  %begun = load i64, ptr %queue, align 8
  %done_at = getelementptr inbounds i8, ptr %queue, i64 8
  %first = load i64, ptr %done_at, align 8
  %groups_at = getelementptr inbounds i8, ptr %queue, i64 16
  %groups = load i64, ptr %groups_at, align 8
  %open = sub i64 %groups, %left
  %time_at = call ptr @block.time(ptr %block)
  %time = load i64, ptr %time_at, align 8
  %time_bits = shl i64 %time, 28
  br label %next
next:
  %number = phi i64 [ %first, %entry ], [ %following, %end ]
  %is_some = icmp ult i64 %number, %begun
  br i1 %is_some, label %look, label %done
look:
  %record = call ptr @copy.record(ptr %queue, i64 %number)
  %r_bytes = getelementptr inbounds i8, ptr %record, i64 8
  %r_size = getelementptr inbounds i8, ptr %record, i64 16
  %r_group = getelementptr inbounds i8, ptr %record, i64 24
  %group = load i64, ptr %r_group, align 8
  %ends = icmp slt i64 %group, %open
  br i1 %ends, label %end, label %done
end:
  %offset = load i64, ptr %record, align 8
  %bytes = load i64, ptr %r_bytes, align 8
  %size = load i64, ptr %r_size, align 8
  call void @copy.mark(ptr %block, i64 %offset, i64 %bytes, i64 %size, i64 %time_bits)
  %following = add i64 %number, 1
  br label %next
done:
  store i64 %number, ptr %done_at, align 8
  ret void
}

; ------------------------------------------------------------------------------------------------------------- buffers
;
; Elements of buffers that a kernel writes have two cells, their last writer and their last reader.  Threads of different
; blocks are never ordered, and may run at once: an access notes itself before it looks at the other cell, so that one of two
; sees the other.  An entry, 0 for nobody:
;
;     block (28 bits) | time since the block began, and one (23 bits) | warps | atomic | several | thread (10 bits)
;
; `several`: by others of the thread's warp too; `warps`: by other warps of the block too; block 2^28 - 1: by several blocks.

define private i1 @buffer.counts(i64 %entry, i64 %number, i64 %start, i64 %barrier_time, i64 %warp_time, i32 %thread,
                                 i32 %shift) alwaysinline {
  %is_somebody = icmp ne i64 %entry, 0
  %entry_block = lshr i64 %entry, 36
  %is_foreign = icmp ne i64 %entry_block, %number
  %passed_bits = lshr i64 %entry, 13
  %passed1 = and i64 %passed_bits, 8388607
  %passed = sub i64 %passed1, 1
  %time = add i64 %start, %passed
  %who = call i32 @buffer.thread(i64 %entry)
  %differs = xor i32 %who, %thread
  %other_warp = lshr i32 %differs, %shift
  %is_far = icmp ne i32 %other_warp, 0
  %warps_bit = lshr i64 %entry, 12
  %warps = trunc i64 %warps_bit to i1
  %by_barriers = or i1 %is_far, %warps
  %since = select i1 %by_barriers, i64 %barrier_time, i64 %warp_time
  %is_recent = icmp uge i64 %time, %since
  %is_other = icmp ne i32 %differs, 0
  %several_bit = lshr i64 %entry, 10
  %several = trunc i64 %several_bit to i1
  %by_others0 = or i1 %is_other, %several
  %by_others = or i1 %by_others0, %warps
  %unordered = and i1 %is_recent, %by_others
  %either = or i1 %is_foreign, %unordered
  %counts = and i1 %is_somebody, %either
  ret i1 %counts
}

define private i32 @buffer.thread(i64 %entry) alwaysinline {
  %who64 = and i64 %entry, 1023
  %who = trunc i64 %who64 to i32
  ret i32 %who
}

; The entry of an access of the same kind after another one that nothing orders before it.
define private i64 @buffer.joined(i64 %entry, i64 %me, i64 %number, i32 %thread, i32 %shift) alwaysinline {
  %entry_block = lshr i64 %entry, 36
  %is_foreign = icmp ne i64 %entry_block, %number
  %who = call i32 @buffer.thread(i64 %entry)
  %differs = xor i32 %who, %thread
  %other_warp = lshr i32 %differs, %shift
  %is_far = icmp ne i32 %other_warp, 0
  %warps_bit = lshr i64 %entry, 12
  %warps = trunc i64 %warps_bit to i1
  %by_warps = or i1 %is_far, %warps
  %of_warps = or i64 %me, 4096
  %of_warp = or i64 %me, 1024
  %of_block = select i1 %by_warps, i64 %of_warps, i64 %of_warp
  %of_blocks = or i64 %me, -68719476736
  %joined = select i1 %is_foreign, i64 %of_blocks, i64 %of_block
  ret i64 %joined
}

define private i64 @exchange(ptr %place, i64 %value, i1 %is_alone) alwaysinline {
entry:
  br i1 %is_alone, label %plain, label %atomic
plain:
  %old = load i64, ptr %place, align 8
  store i64 %value, ptr %place, align 8
  ret i64 %old
atomic:
  %swapped = atomicrmw xchg ptr %place, i64 %value seq_cst
  ret i64 %swapped
}

; Note an access to a buffer, which has cells for every `size` bytes; true if it races with an earlier one, which is a fault.
; The access is one of `step` cells at a time, of which the first ones are used: memory without a type has a cell a byte.
define i1 @hlojit_simulator_buffer(ptr %block, i32 %thread, i32 %site, i64 %buffer, i64 %offset, i64 %bytes, i64 %size,
                                   i64 %step, i32 %use) {
entry:
  %launch_at = call ptr @block.launch(ptr %block)
  %launch = load ptr, ptr %launch_at, align 8
  %table_at = call ptr @launch.cells(ptr %launch)
  %table = load ptr, ptr %table_at, align 8
  %cells_at = getelementptr inbounds ptr, ptr %table, i64 %buffer
  %cells = load ptr, ptr %cells_at, align 8
  %nobody_asks = icmp eq ptr %cells, null
  br i1 %nobody_asks, label %done, label %now
now:
  %alone_at = call ptr @launch.alone(ptr %launch)
  %alone = load i32, ptr %alone_at, align 4
  %is_alone = icmp ne i32 %alone, 0
  %time_at = call ptr @block.time(ptr %block)
  %time = load i64, ptr %time_at, align 8
  %start_at = call ptr @block.start_time(ptr %block)
  %start = load i64, ptr %start_at, align 8
  %barrier_at = call ptr @block.barrier_time(ptr %block)
  %barrier_time = load i64, ptr %barrier_at, align 8
  %number_at = call ptr @block.number(ptr %block)
  %number = load i64, ptr %number_at, align 8
  %shift_at = call ptr @block.warp_shift(ptr %block)
  %shift = load i32, ptr %shift_at, align 4
  %warp = lshr i32 %thread, %shift
  %clocks_at = call ptr @block.clocks(ptr %block)
  %clocks = load ptr, ptr %clocks_at, align 8
  %clock = getelementptr inbounds i64, ptr %clocks, i32 %warp
  %warp_time = load i64, ptr %clock, align 8

  %block_bits = shl i64 %number, 36
  %passed = sub i64 %time, %start
  ; What is later than there is room for counts as ordered.
  %room = call i64 @llvm.umin.i64(i64 %passed, i64 8388606)
  %passed1 = add i64 %room, 1
  %time_bits = shl i64 %passed1, 13
  %is_atomic = icmp eq i32 %use, 2
  %atomic_bit = select i1 %is_atomic, i64 2048, i64 0
  %thread64 = zext i32 %thread to i64
  %who0 = or i64 %time_bits, %thread64
  %who = or i64 %who0, %atomic_bit
  %me = or i64 %block_bits, %who
  %size_shift = call i64 @llvm.cttz.i64(i64 %size, i1 true)   ; a power of two
  %first = lshr i64 %offset, %size_shift
  %end_offset = add i64 %offset, %bytes
  %end = lshr i64 %end_offset, %size_shift
  %some = icmp ult i64 %first, %end
  br i1 %some, label %element, label %done

element:
  %at = phi i64 [ %first, %now ], [ %next, %fine ]
  %cell_offset = shl i64 %at, 4
  %writer_at = getelementptr inbounds i8, ptr %cells, i64 %cell_offset
  %reader_at = getelementptr inbounds i8, ptr %writer_at, i64 8
  %is_load = icmp eq i32 %use, 0
  br i1 %is_load, label %load, label %write

load:
  %old_reader = call i64 @exchange(ptr %reader_at, i64 %me, i1 %is_alone)
  %was_used = icmp ne i64 %old_reader, 0
  br i1 %was_used, label %look_at_reader, label %look_for_writer
look_at_reader:
  %read = call i1 @buffer.counts(i64 %old_reader, i64 %number, i64 %start, i64 %barrier_time, i64 %warp_time, i32 %thread,
                                 i32 %shift)
  br i1 %read, label %join_readers, label %look_for_writer
join_readers:
  %readers = call i64 @buffer.joined(i64 %old_reader, i64 %me, i64 %number, i32 %thread, i32 %shift)
  store atomic i64 %readers, ptr %reader_at monotonic, align 8
  br label %look_for_writer
look_for_writer:
  %writer = load atomic i64, ptr %writer_at seq_cst, align 8
  %has_writer = icmp ne i64 %writer, 0
  br i1 %has_writer, label %look_at_writer, label %fine
look_at_writer:
  %was_written = call i1 @buffer.counts(i64 %writer, i64 %number, i64 %start, i64 %barrier_time, i64 %warp_time, i32 %thread,
                                        i32 %shift)
  br i1 %was_written, label %race, label %fine

write:
  %old_writer = call i64 @exchange(ptr %writer_at, i64 %me, i1 %is_alone)
  %was_new = icmp eq i64 %old_writer, 0
  br i1 %was_new, label %look_for_reader, label %look_at_old_writer
look_at_old_writer:
  %written = call i1 @buffer.counts(i64 %old_writer, i64 %number, i64 %start, i64 %barrier_time, i64 %warp_time, i32 %thread,
                                    i32 %shift)
  br i1 %written, label %by_whom, label %look_for_reader
by_whom:
  %was_atomic_bit = lshr i64 %old_writer, 11
  %was_atomic = trunc i64 %was_atomic_bit to i1
  %both_atomic = and i1 %was_atomic, %is_atomic
  br i1 %both_atomic, label %join_writers, label %race
join_writers:
  %writers = call i64 @buffer.joined(i64 %old_writer, i64 %me, i64 %number, i32 %thread, i32 %shift)
  store atomic i64 %writers, ptr %writer_at monotonic, align 8
  br label %look_for_reader
look_for_reader:
  %reader = load atomic i64, ptr %reader_at seq_cst, align 8
  %has_reader = icmp ne i64 %reader, 0
  br i1 %has_reader, label %look_at_last_reader, label %fine
look_at_last_reader:
  %was_read = call i1 @buffer.counts(i64 %reader, i64 %number, i64 %start, i64 %barrier_time, i64 %warp_time, i32 %thread,
                                     i32 %shift)
  br i1 %was_read, label %race, label %fine

race:
  ; The other one, and whether it wrote.
  %other = phi i64 [ %writer, %look_at_writer ], [ %old_writer, %by_whom ], [ %reader, %look_at_last_reader ]
  %wrote = phi i32 [ 1, %look_at_writer ], [ 1, %by_whom ], [ 0, %look_at_last_reader ]
  %other_block = lshr i64 %other, 36
  %other_thread = call i32 @buffer.thread(i64 %other)
  %place = mul i64 %at, %size
  %context_at = call ptr @block.context(ptr %block)
  %context = load ptr, ptr %context_at, align 8
  call void @fault(ptr %context, ptr %launch, i32 3, i64 %number, i32 %site, i32 %thread, i64 %other_block, i32 %wrote,
                   i32 %other_thread, i64 %place)
  %stopped_at = call ptr @block.stopped(ptr %block)
  store i32 1, ptr %stopped_at, align 4
  ret i1 true
fine:
  %next = add nuw i64 %at, %step
  %more = icmp ult i64 %next, %end
  br i1 %more, label %element, label %done
done:
  ret i1 false
}

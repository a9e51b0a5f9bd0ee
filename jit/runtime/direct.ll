; Calls of programs from native code that knows no Python: no object is looked at, and no lock is taken.
;
; Whoever calls has a place of two words: the address of a table (layout.py), and a note that something was found there.  A table
; has what it was made for - words of memory that have to hold what they held - and one record for each set of sizes that was seen.
; Tables are replaced as a whole and never freed.

; ptr hlojit_direct_find(ptr place, ptr sizes): the record for arguments of these sizes; null where there is none.
define ptr @hlojit_direct_find(ptr %place, ptr %sizes) {
entry:
  %table = load atomic ptr, ptr %place acquire, align 8
  %no_table = icmp eq ptr %table, null
  br i1 %no_table, label %none, label %begin
begin:
  %watched_at = call ptr @direct_table.watched(ptr %table)
  %watched = load i64, ptr %watched_at, align 8
  %words_at = call ptr @direct_table.words(ptr %table)
  %words = load ptr, ptr %words_at, align 8
  br label %watch
watch:
  %number = phi i64 [ 0, %begin ], [ %number1, %compare ]
  %more = icmp ult i64 %number, %watched
  br i1 %more, label %compare, label %search
compare:
  %pair = shl i64 %number, 1
  %address_at = getelementptr inbounds ptr, ptr %words, i64 %pair
  %address = load ptr, ptr %address_at, align 8
  %wanted_at = getelementptr inbounds ptr, ptr %address_at, i64 1
  %wanted = load atomic i64, ptr %wanted_at monotonic, align 8
  %word = load atomic i64, ptr %address monotonic, align 8
  %number1 = add i64 %number, 1
  %is_same = icmp eq i64 %word, %wanted
  br i1 %is_same, label %watch, label %none

search:
  %count_at = call ptr @direct_table.records(ptr %table)
  %count = load i64, ptr %count_at, align 8
  %ranks_at = call ptr @direct_table.ranks(ptr %table)
  %ranks = load i64, ptr %ranks_at, align 8
  %first = getelementptr inbounds i8, ptr %table, i64 32   ; DIRECT_TABLE_BYTES
  br label %each
each:
  %position = phi i64 [ 0, %search ], [ %position1, %differs ]
  %is_one = icmp ult i64 %position, %count
  br i1 %is_one, label %open, label %none
open:
  %record_at = getelementptr inbounds ptr, ptr %first, i64 %position
  %record = load ptr, ptr %record_at, align 8
  %own_at = call ptr @direct.sizes(ptr %record)
  %own = load ptr, ptr %own_at, align 8
  br label %size
size:
  %dimension = phi i64 [ 0, %open ], [ %dimension1, %equal ]
  %is_dimension = icmp ult i64 %dimension, %ranks
  br i1 %is_dimension, label %equal, label %found
equal:
  %own_size_at = getelementptr inbounds i64, ptr %own, i64 %dimension
  %own_size = load i64, ptr %own_size_at, align 8
  %given_size_at = getelementptr inbounds i64, ptr %sizes, i64 %dimension
  %given_size = load i64, ptr %given_size_at, align 8
  %dimension1 = add i64 %dimension, 1
  %is_equal = icmp eq i64 %own_size, %given_size
  br i1 %is_equal, label %size, label %differs
differs:
  %position1 = add i64 %position, 1
  br label %each
found:
  ; Written once only: threads would take the line from each other.
  %note_at = getelementptr inbounds i64, ptr %place, i64 1
  %noted = load atomic i64, ptr %note_at monotonic, align 8
  %is_noted = icmp ne i64 %noted, 0
  br i1 %is_noted, label %give, label %note
note:
  store atomic i64 1, ptr %note_at monotonic, align 8
  br label %give
give:
  ret ptr %record
none:
  ret ptr null
}

; i32 hlojit_direct_run(ptr record, ptr arrays): run the program on the arguments' memory, into that of the results, which stands
; behind them.  Not 0 where it failed or a check did, and where an array that is written lies on another one: nothing has been
; written into arguments then, and results hold anything.
define i32 @hlojit_direct_run(ptr %record, ptr %arrays) {
entry:
  %call_at = call ptr @direct.call(ptr %record)
  %call = load ptr, ptr %call_at, align 8
  %leaves_at = call ptr @direct.leaves(ptr %record)
  %leaves = load i64, ptr %leaves_at, align 8
  %results_at = call ptr @direct.results(ptr %record)
  %results = load i64, ptr %results_at, align 8
  %writes_at = call ptr @direct.writes(ptr %record)
  %writes = load i64, ptr %writes_at, align 8
  %written_at = call ptr @direct.written(ptr %record)
  %written = load ptr, ptr %written_at, align 8
  %apart_at = call ptr @direct.apart(ptr %record)
  %apart = load i64, ptr %apart_at, align 8
  %pairs_at = call ptr @direct.pairs(ptr %record)
  %pairs = load ptr, ptr %pairs_at, align 8
  br label %overlap

  ; --- arrays that are written, and others
overlap:
  %pair = phi i64 [ 0, %entry ], [ %pair1, %measure ]
  %more_pairs = icmp ult i64 %pair, %apart
  br i1 %more_pairs, label %measure, label %lay_out
measure:
  %quad = shl i64 %pair, 2
  %one_at = getelementptr inbounds i64, ptr %pairs, i64 %quad
  %one = load i64, ptr %one_at, align 8
  %one_bytes_at = getelementptr inbounds i64, ptr %one_at, i64 1
  %one_bytes = load i64, ptr %one_bytes_at, align 8
  %other_at = getelementptr inbounds i64, ptr %one_at, i64 2
  %other = load i64, ptr %other_at, align 8
  %other_bytes_at = getelementptr inbounds i64, ptr %one_at, i64 3
  %other_bytes = load i64, ptr %other_bytes_at, align 8
  %one_data_at = getelementptr inbounds i64, ptr %arrays, i64 %one
  %one_data = load i64, ptr %one_data_at, align 8
  %other_data_at = getelementptr inbounds i64, ptr %arrays, i64 %other
  %other_data = load i64, ptr %other_data_at, align 8
  %one_end = add i64 %one_data, %one_bytes
  %other_end = add i64 %other_data, %other_bytes
  %begins = icmp ult i64 %one_data, %other_end
  %ends = icmp ult i64 %other_data, %one_end
  %lies_on = and i1 %begins, %ends
  %pair1 = add i64 %pair, 1
  br i1 %lies_on, label %refuse, label %overlap

  ; --- slots: arguments, results, what is written, the number of a failed check; room for the arena and constants
lay_out:
  %words_at = call ptr @direct.words(ptr %record)
  %words = load i64, ptr %words_at, align 8
  %slots = alloca i64, i64 %words, align 16
  %check = alloca i64, align 8
  store i64 0, ptr %check, align 8
  %given = add i64 %leaves, %results
  %given_bytes = shl i64 %given, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %slots, ptr align 8 %arrays, i64 %given_bytes, i1 false)
  %rest = getelementptr inbounds ptr, ptr %slots, i64 %given
  br label %reserve
reserve:
  %made = phi i64 [ 0, %lay_out ], [ %made1, %keep ]
  %more_writes = icmp ult i64 %made, %writes
  br i1 %more_writes, label %take, label %run
take:
  %bytes = call i64 @direct.write_bytes(ptr %written, i64 %made)
  %block = call ptr @hlojit_allocate(i64 %bytes)
  %is_refused = icmp eq ptr %block, null
  br i1 %is_refused, label %drop, label %keep
keep:
  %block_at = getelementptr inbounds ptr, ptr %rest, i64 %made
  store ptr %block, ptr %block_at, align 8
  %made1 = add i64 %made, 1
  br label %reserve

run:
  %check_at = getelementptr inbounds ptr, ptr %rest, i64 %writes
  store ptr %check, ptr %check_at, align 8
  %context = alloca [192 x i8], align 64
  call void @llvm.memset.p0.i64(ptr align 64 %context, i8 0, i64 192, i1 false)
  ; Polls never ask Python: the thread may not have its lock, nor be known to it.
  %deadline_at = call ptr @context.poll_deadline(ptr %context)
  store i64 -1, ptr %deadline_at, align 8
  %status = call i32 @hlojit_execute(ptr %context, ptr %call, ptr %slots)
  %failed = load i32, ptr %check, align 8
  %either = or i32 %status, %failed
  %is_good = icmp eq i32 %either, 0
  br i1 %is_good, label %write, label %drop

  ; --- what the program wrote of its arguments
write:
  %done = phi i64 [ 0, %run ], [ %done1, %copy ]
  %more_copies = icmp ult i64 %done, %writes
  br i1 %more_copies, label %copy, label %good
copy:
  %leaf_number = shl i64 %done, 1
  %leaf_at = getelementptr inbounds i64, ptr %written, i64 %leaf_number
  %leaf = load i64, ptr %leaf_at, align 8
  %copied_bytes = call i64 @direct.write_bytes(ptr %written, i64 %done)
  %target_at = getelementptr inbounds ptr, ptr %arrays, i64 %leaf
  %target = load ptr, ptr %target_at, align 8
  %source_at = getelementptr inbounds ptr, ptr %rest, i64 %done
  %source = load ptr, ptr %source_at, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %copied_bytes, i1 false)
  call void @hlojit_release(ptr %source)
  %done1 = add i64 %done, 1
  br label %write
good:
  ret i32 0

drop:
  %left = phi i64 [ %made, %take ], [ %writes, %run ], [ %left1, %release ]
  %some_left = icmp ne i64 %left, 0
  br i1 %some_left, label %release, label %refuse
release:
  %left1 = sub i64 %left, 1
  %dropped_at = getelementptr inbounds ptr, ptr %rest, i64 %left1
  %dropped = load ptr, ptr %dropped_at, align 8
  call void @hlojit_release(ptr %dropped)
  br label %drop
refuse:
  ret i32 1
}

define private i64 @direct.write_bytes(ptr %written, i64 %number) alwaysinline {
  %pair = shl i64 %number, 1
  %leaf_at = getelementptr inbounds i64, ptr %written, i64 %pair
  %bytes_at = getelementptr inbounds i64, ptr %leaf_at, i64 1
  %bytes = load i64, ptr %bytes_at, align 8
  ret i64 %bytes
}

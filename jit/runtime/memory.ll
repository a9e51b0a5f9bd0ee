; The memory pool: blocks for arrays and temporaries, whose pages are used again.
;
; ptr hlojit_allocate(i64 bytes): a block, aligned to 64 bytes, or null when the limit is reached or the system refuses.
; void hlojit_release(ptr block): give it back.
;
; Sizes are rounded up to one of eight steps per power of two.  Freed blocks wait in one list per class, last in, first out,
; so that the next block is still in the cache.  Small blocks are cut from slabs; blocks above a megabyte are mappings of
; their own (huge pages where the system has them).  Each block is preceded by 64 bytes: class, bytes, start of the mapping.
;
; Memory that waits in lists counts as cached.  What would exceed the cap on it is unmapped when it is released.
;
; No system call is made, and no fresh page touched, under the lock: others would spin through a page fault or an unmapping of
; gigabytes.  What is to be unmapped is taken off its list first; bytes are counted as mapped before they are asked for and until
; they are gone, so that the limit holds at any moment.

@memory.lock   = internal global i32 0, align 128
@memory.lists  = internal global [512 x ptr] zeroinitializer, align 64

; For reading by Python, in this order: see `memory_statistics` in native.py.
@memory.counters = internal global [8 x i64] zeroinitializer, align 64
;   0 allocations   1 of them from a list   2 bytes in use   3 peak of that
;   4 bytes mapped  5 bytes cached          6 failures       7 mappings made

@memory.cap    = internal global i64 4294967296   ; bytes that may wait in lists of large blocks
@memory.limit  = internal global i64 9223372036854775807   ; bytes that may be mapped
@memory.unwritten = internal global i32 -1        ; a byte that blocks are filled with; negative: as they are
@memory.slab   = internal global ptr null   ; what is left of the current slab
@memory.slab_left = internal global i64 0
@memory.arriving = internal global i64 0   ; mappings that are being made
@memory.leaving = internal global i64 0    ; parts that are being unmapped

declare i64 @llvm.ctlz.i64(i64, i1)
declare i32 @llvm.smax.i32(i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; The lock when no thread is in the system's hands either: what a child of fork may inherit.
define private void @memory.acquire_settled() {
entry:
  call void @memory.acquire()
  br label %look
look:
  %arriving = load i64, ptr @memory.arriving, align 8
  %leaving = load i64, ptr @memory.leaving, align 8
  %under_way = or i64 %arriving, %leaving
  %is_settled = icmp eq i64 %under_way, 0
  br i1 %is_settled, label %mine, label %wait
wait:
  call void @memory.pause()
  br label %look
mine:
  ret void
}

; Let others have the lock for a while.
define private void @memory.pause() noinline cold {
  call void @memory.free_lock()
  call void @thread.yield()
  call void @memory.acquire()
  ret void
}

define private void @memory.acquire() {
entry:
  br label %try
try:
  %before = atomicrmw xchg ptr @memory.lock, i32 1 acquire
  %is_mine = icmp eq i32 %before, 0
  br i1 %is_mine, label %mine, label %wait
wait:
  ; The lock is held for nanoseconds, unless its holder was descheduled.
  call void @thread.yield()
  br label %try
mine:
  ret void
}

define private void @memory.free_lock() alwaysinline {
  store atomic i32 0, ptr @memory.lock release, align 4
  ret void
}

define private ptr @memory.counter(i64 %number) alwaysinline {
  %at = getelementptr inbounds [8 x i64], ptr @memory.counters, i64 0, i64 %number
  ret ptr %at
}

define private i64 @memory.count(i64 %number, i64 %change) alwaysinline {
  %at = call ptr @memory.counter(i64 %number)
  %before = load i64, ptr %at, align 8
  %after = add i64 %before, %change
  store i64 %after, ptr %at, align 8
  ret i64 %after
}

; Class and size of a request: { class, size of its blocks }.
define private { i64, i64 } @memory.class(i64 %bytes) alwaysinline {
  %with_header = add i64 %bytes, 127   ; 64 for the header, 63 to round up
  %rounded = and i64 %with_header, -64
  %total = call i64 @llvm.smax.i64(i64 %rounded, i64 128)
  %last = sub i64 %total, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %last, i1 true)
  %shift = sub i64 60, %zeros
  %step = lshr i64 %last, %shift       ; 8 to 15
  %steps = shl i64 %shift, 3
  %in_octave = sub i64 %step, 8
  %class = add i64 %steps, %in_octave
  %step1 = add i64 %step, 1
  %size = shl i64 %step1, %shift
  %pair = insertvalue { i64, i64 } poison, i64 %class, 0
  %result = insertvalue { i64, i64 } %pair, i64 %size, 1
  ret { i64, i64 } %result
}

define ptr @hlojit_allocate(i64 %bytes) {
entry:
  %block = call ptr @memory.allocate(i64 %bytes)
  %byte = load atomic i32, ptr @memory.unwritten monotonic, align 4
  %is_usual = icmp slt i32 %byte, 0
  br i1 %is_usual, label %done, label %fill
fill:
  call void @memory.fill(ptr %block, i32 %byte)
  br label %done
done:
  ret ptr %block
}

; A block as whoever looks for elements that are not written wants it, to its end.
define private void @memory.fill(ptr %block, i32 %byte) noinline cold {
entry:
  %is_null = icmp eq ptr %block, null
  br i1 %is_null, label %done, label %fill
fill:
  %size_at = getelementptr inbounds i8, ptr %block, i64 -56
  %size = load i64, ptr %size_at, align 8
  %usable = sub i64 %size, 64
  %byte8 = trunc i32 %byte to i8
  call void @llvm.memset.p0.i64(ptr %block, i8 %byte8, i64 %usable, i1 false)
  br label %done
done:
  ret void
}

; void hlojit_clear(ptr memory, i64 bytes): what is to be written by a function that may not write it.
define void @hlojit_clear(ptr %memory, i64 %bytes) {
  %byte = load atomic i32, ptr @memory.unwritten monotonic, align 4
  %chosen = call i32 @llvm.smax.i32(i32 %byte, i32 0)
  %byte8 = trunc i32 %chosen to i8
  call void @llvm.memset.p0.i64(ptr %memory, i8 %byte8, i64 %bytes, i1 false)
  ret void
}

define private ptr @memory.allocate(i64 %bytes) {
entry:
  ; Sizes beyond 2^46 are refused here, so that no sum below can overflow.
  %is_sane = icmp ule i64 %bytes, 70368744177664
  br i1 %is_sane, label %classify, label %refuse
refuse:
  call void @memory.acquire()
  %failures = call i64 @memory.count(i64 6, i64 1)
  call void @memory.free_lock()
  ret ptr null
classify:
  %pair = call { i64, i64 } @memory.class(i64 %bytes)
  %class = extractvalue { i64, i64 } %pair, 0
  %size = extractvalue { i64, i64 } %pair, 1
  %list = getelementptr inbounds [512 x ptr], ptr @memory.lists, i64 0, i64 %class
  call void @memory.acquire()
  %head = load ptr, ptr %list, align 8
  %is_empty = icmp eq ptr %head, null
  br i1 %is_empty, label %fresh, label %reuse
fresh:
  %block = call ptr @memory.fresh(i64 %class, i64 %size)
  ret ptr %block
reuse:
  ; The first word of a waiting block points to the next one.
  %next = load ptr, ptr %head, align 8
  store ptr %next, ptr %list, align 8
  %reuses = call i64 @memory.count(i64 1, i64 1)
  %negative = sub i64 0, %size
  %cached = call i64 @memory.count(i64 5, i64 %negative)
  call void @memory.give(i64 %size)
  call void @memory.free_lock()
  ret ptr %head
}

; Count a block that is given away.
define private void @memory.give(i64 %size) alwaysinline {
  %allocations = call i64 @memory.count(i64 0, i64 1)
  %in_use = call i64 @memory.count(i64 2, i64 %size)
  %peak_at = call ptr @memory.counter(i64 3)
  %peak = load i64, ptr %peak_at, align 8
  %new_peak = call i64 @llvm.smax.i64(i64 %peak, i64 %in_use)
  store i64 %new_peak, ptr %peak_at, align 8
  ret void
}

; A block that was never used, or null.  Begins with the lock and gives it back.
define private ptr @memory.fresh(i64 %class, i64 %size) noinline cold {
entry:
  %is_large = icmp ugt i64 %size, 1048576
  br i1 %is_large, label %map, label %cut
map:
  ; A mapping of its own, in whole huge pages.
  %up = add i64 %size, 2097151
  %whole = and i64 %up, -2097152
  %mapped = call ptr @memory.map(i64 %whole)
  br label %made
cut:
  %piece = call ptr @memory.cut(i64 %size)
  br label %made
made:
  %start = phi ptr [ %mapped, %map ], [ %piece, %cut ]
  %mapping = phi ptr [ %mapped, %map ], [ null, %cut ]
  %length = phi i64 [ %whole, %map ], [ 0, %cut ]
  %is_null = icmp eq ptr %start, null
  br i1 %is_null, label %none, label %some
none:
  %failures = call i64 @memory.count(i64 6, i64 1)
  call void @memory.free_lock()
  ret ptr null
some:
  call void @memory.give(i64 %size)
  call void @memory.free_lock()
  ; The header: the first touch of a page, as a rule.
  store i64 %class, ptr %start, align 8
  %size_at = getelementptr inbounds i8, ptr %start, i64 8
  store i64 %size, ptr %size_at, align 8
  %mapping_at = getelementptr inbounds i8, ptr %start, i64 16
  store ptr %mapping, ptr %mapping_at, align 8
  %length_at = getelementptr inbounds i8, ptr %start, i64 24
  store i64 %length, ptr %length_at, align 8
  %block = getelementptr inbounds i8, ptr %start, i64 64
  ret ptr %block
}

; A piece of the slab, or null.  What is left of a slab when it is too small is lost (at most one block's size).
define private ptr @memory.cut(i64 %size) {
entry:
  br label %look
look:
  %available = load i64, ptr @memory.slab_left, align 8
  %enough = icmp uge i64 %available, %size
  br i1 %enough, label %take, label %fetch
fetch:
  %slab = call ptr @memory.map(i64 16777216)
  ; Another thread may have been here meanwhile.
  %left = load i64, ptr @memory.slab_left, align 8
  %has_other = icmp uge i64 %left, %size
  %is_null = icmp eq ptr %slab, null
  br i1 %has_other, label %keep_other, label %missing
keep_other:
  br i1 %is_null, label %look, label %surplus
surplus:
  call void @memory.unmap(ptr %slab, i64 16777216)
  br label %look
missing:
  br i1 %is_null, label %none, label %install
install:
  store ptr %slab, ptr @memory.slab, align 8
  store i64 16777216, ptr @memory.slab_left, align 8
  br label %look
take:
  %start = load ptr, ptr @memory.slab, align 8
  %after = getelementptr inbounds i8, ptr %start, i64 %size
  %remaining = sub i64 %available, %size
  store ptr %after, ptr @memory.slab, align 8
  store i64 %remaining, ptr @memory.slab_left, align 8
  ret ptr %start
none:
  ret ptr null
}

define void @hlojit_release(ptr %block) {
entry:
  %header = getelementptr inbounds i8, ptr %block, i64 -64
  %class = load i64, ptr %header, align 8
  %size_at = getelementptr inbounds i8, ptr %header, i64 8
  %size = load i64, ptr %size_at, align 8
  %list = getelementptr inbounds [512 x ptr], ptr @memory.lists, i64 0, i64 %class
  call void @memory.acquire()
  %negative = sub i64 0, %size
  %in_use = call i64 @memory.count(i64 2, i64 %negative)
  %cached_at = call ptr @memory.counter(i64 5)
  %cached = load i64, ptr %cached_at, align 8
  %cached1 = add i64 %cached, %size
  %cap = load i64, ptr @memory.cap, align 8
  %is_large = icmp ugt i64 %size, 1048576
  %is_over = icmp ugt i64 %cached1, %cap
  %unmap = and i1 %is_large, %is_over
  br i1 %unmap, label %return, label %keep
return:
  %mapping_at = getelementptr inbounds i8, ptr %header, i64 16
  %mapping = load ptr, ptr %mapping_at, align 8
  %length_at = getelementptr inbounds i8, ptr %header, i64 24
  %length = load i64, ptr %length_at, align 8
  call void @memory.unmap(ptr %mapping, i64 %length)
  br label %done
keep:
  %head = load ptr, ptr %list, align 8
  store ptr %head, ptr %block, align 8
  store ptr %block, ptr %list, align 8
  store i64 %cached1, ptr %cached_at, align 8
  br label %done
done:
  call void @memory.free_lock()
  ret void
}

; Begin and end with the lock, and are without it while the system works: map, unmap, trim.

; `length` bytes, or null when the limit is reached or the system refuses.
define private ptr @memory.map(i64 %length) noinline cold {
entry:
  %mapped_at = call ptr @memory.counter(i64 4)
  br label %ask
ask:
  %limit = load i64, ptr @memory.limit, align 8
  %mapped = load i64, ptr %mapped_at, align 8
  %total = add i64 %mapped, %length
  %fits = icmp ule i64 %total, %limit
  br i1 %fits, label %reserve, label %free
free:
  ; Cached memory goes back to the system if that is what it takes, and what others give back is waited for.
  %freed = call i64 @memory.trim()
  %has_freed = icmp ne i64 %freed, 0
  br i1 %has_freed, label %ask, label %others
others:
  %leaving = load i64, ptr @memory.leaving, align 8
  %is_leaving = icmp ne i64 %leaving, 0
  br i1 %is_leaving, label %wait, label %none
wait:
  call void @memory.pause()
  br label %ask
reserve:
  store i64 %total, ptr %mapped_at, align 8
  %arriving = load i64, ptr @memory.arriving, align 8
  %arriving1 = add i64 %arriving, 1
  store i64 %arriving1, ptr @memory.arriving, align 8
  call void @memory.free_lock()
  %mapping = call ptr @pages.map(i64 %length)
  call void @memory.acquire()
  %arriving2 = load i64, ptr @memory.arriving, align 8
  %arriving3 = sub i64 %arriving2, 1
  store i64 %arriving3, ptr @memory.arriving, align 8
  %is_mapped = icmp ne ptr %mapping, null
  br i1 %is_mapped, label %count, label %refused
count:
  %mappings = call i64 @memory.count(i64 7, i64 1)
  ret ptr %mapping
refused:
  %negative = sub i64 0, %length
  %less = call i64 @memory.count(i64 4, i64 %negative)
  %freed2 = call i64 @memory.trim()
  %has_freed2 = icmp ne i64 %freed2, 0
  br i1 %has_freed2, label %ask, label %none
none:
  ret ptr null
}

define private void @memory.begin_leaving() {
  %leaving = load i64, ptr @memory.leaving, align 8
  %leaving1 = add i64 %leaving, 1
  store i64 %leaving1, ptr @memory.leaving, align 8
  call void @memory.free_lock()
  ret void
}

; `bytes` are gone.
define private void @memory.end_leaving(i64 %bytes) {
  call void @memory.acquire()
  %leaving = load i64, ptr @memory.leaving, align 8
  %leaving1 = sub i64 %leaving, 1
  store i64 %leaving1, ptr @memory.leaving, align 8
  %negative = sub i64 0, %bytes
  %mapped = call i64 @memory.count(i64 4, i64 %negative)
  ret void
}

define private void @memory.unmap(ptr %mapping, i64 %length) noinline cold {
  call void @memory.begin_leaving()
  call void @pages.unmap(ptr %mapping, i64 %length)
  call void @memory.end_leaving(i64 %length)
  ret void
}

; Unmap every large block that waits in a list; returns their number.  Classes of large blocks begin at 8 * 17 (a megabyte is
; 8 << 17).
define private i64 @memory.trim() noinline cold {
entry:
  br label %list
list:
  %class = phi i64 [ 136, %entry ], [ %class1, %next ]
  %chain = phi ptr [ null, %entry ], [ %chain1, %next ]
  %at = getelementptr inbounds [512 x ptr], ptr @memory.lists, i64 0, i64 %class
  br label %head
head:
  %chain1 = phi ptr [ %chain, %list ], [ %block, %take ]
  %block = load ptr, ptr %at, align 8
  %is_empty = icmp eq ptr %block, null
  br i1 %is_empty, label %next, label %take
take:
  %following = load ptr, ptr %block, align 8
  store ptr %following, ptr %at, align 8
  store ptr %chain1, ptr %block, align 8
  %size_at = getelementptr inbounds i8, ptr %block, i64 -56
  %size = load i64, ptr %size_at, align 8
  %negative = sub i64 0, %size
  %cached = call i64 @memory.count(i64 5, i64 %negative)
  br label %head
next:
  %class1 = add i64 %class, 1
  %more = icmp ult i64 %class1, 512
  br i1 %more, label %list, label %taken
taken:
  %has_none = icmp eq ptr %chain1, null
  br i1 %has_none, label %none, label %leave
none:
  ret i64 0
leave:
  call void @memory.begin_leaving()
  br label %drop
drop:
  %old = phi ptr [ %chain1, %leave ], [ %older, %drop ]
  %count = phi i64 [ 0, %leave ], [ %count1, %drop ]
  %bytes = phi i64 [ 0, %leave ], [ %bytes1, %drop ]
  %older = load ptr, ptr %old, align 8
  %mapping_at = getelementptr inbounds i8, ptr %old, i64 -48
  %mapping = load ptr, ptr %mapping_at, align 8
  %length_at = getelementptr inbounds i8, ptr %old, i64 -40
  %length = load i64, ptr %length_at, align 8
  call void @pages.unmap(ptr %mapping, i64 %length)
  %count1 = add i64 %count, 1
  %bytes1 = add i64 %bytes, %length
  %is_last = icmp eq ptr %older, null
  br i1 %is_last, label %done, label %drop
done:
  call void @memory.end_leaving(i64 %bytes1)
  ret i64 %count1
}

; ------------------------------------------------------------------------------------------------------- for Python

define void @hlojit_memory_trim() {
  call void @memory.acquire()
  %count = call i64 @memory.trim()
  call void @memory.free_lock()
  ret void
}

define void @hlojit_memory_setup(i64 %cap, i64 %limit) {
  call void @memory.acquire()
  store i64 %cap, ptr @memory.cap, align 8
  store i64 %limit, ptr @memory.limit, align 8
  call void @memory.free_lock()
  ret void
}

define void @hlojit_memory_fill(i32 %byte) {
  store atomic i32 %byte, ptr @memory.unwritten monotonic, align 4
  ret void
}

define ptr @hlojit_memory_counters() {
  ret ptr @memory.counters
}

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

@memory.lock   = internal global i32 0, align 128
@memory.lists  = internal global [512 x ptr] zeroinitializer, align 64

; For reading by Python, in this order: see `memory_statistics` in native.py.
@memory.counters = internal global [8 x i64] zeroinitializer, align 64
;   0 allocations   1 of them from a list   2 bytes in use   3 peak of that
;   4 bytes mapped  5 bytes cached          6 failures       7 mappings made

@memory.cap    = internal global i64 4294967296   ; bytes that may wait in lists of large blocks
@memory.limit  = internal global i64 9223372036854775807   ; bytes that may be mapped
@memory.slab   = internal global ptr null   ; what is left of the current slab
@memory.slab_left = internal global i64 0

declare i64 @llvm.ctlz.i64(i64, i1)

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
  ; Sizes beyond 2^46 are refused here, so that no sum below can overflow.
  %is_sane = icmp ule i64 %bytes, 70368744177664
  br i1 %is_sane, label %classify, label %refuse
classify:
  %pair = call { i64, i64 } @memory.class(i64 %bytes)
  %class = extractvalue { i64, i64 } %pair, 0
  %size = extractvalue { i64, i64 } %pair, 1
  %list = getelementptr inbounds [512 x ptr], ptr @memory.lists, i64 0, i64 %class
  call void @memory.acquire()
  %head = load ptr, ptr %list, align 8
  %is_empty = icmp eq ptr %head, null
  br i1 %is_empty, label %fresh, label %reuse
reuse:
  ; The first word of a waiting block points to the next one.
  %next = load ptr, ptr %head, align 8
  store ptr %next, ptr %list, align 8
  %reuses = call i64 @memory.count(i64 1, i64 1)
  %negative = sub i64 0, %size
  %cached = call i64 @memory.count(i64 5, i64 %negative)
  br label %give
fresh:
  %is_large = icmp ugt i64 %size, 1048576
  br i1 %is_large, label %map, label %cut
map:
  %mapped = call ptr @memory.map_block(i64 %class, i64 %size)
  br label %made
cut:
  %piece = call ptr @memory.cut_block(i64 %class, i64 %size)
  br label %made
made:
  %block = phi ptr [ %mapped, %map ], [ %piece, %cut ]
  %is_null = icmp eq ptr %block, null
  br i1 %is_null, label %failed, label %give
failed:
  call void @memory.free_lock()
  br label %refuse
refuse:
  %failures = call i64 @memory.count(i64 6, i64 1)
  ret ptr null
give:
  %result = phi ptr [ %head, %reuse ], [ %block, %made ]
  %allocations = call i64 @memory.count(i64 0, i64 1)
  %in_use = call i64 @memory.count(i64 2, i64 %size)
  %peak_at = call ptr @memory.counter(i64 3)
  %peak = load i64, ptr %peak_at, align 8
  %new_peak = call i64 @llvm.smax.i64(i64 %peak, i64 %in_use)
  store i64 %new_peak, ptr %peak_at, align 8
  call void @memory.free_lock()
  ret ptr %result
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
  call void @memory.unmap_block(ptr %block)
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

; Whether `bytes` more may be mapped; gives cached memory back to the system if that is what it takes.
define private i1 @memory.admit(i64 %bytes) noinline cold {
entry:
  %mapped_at = call ptr @memory.counter(i64 4)
  %limit = load i64, ptr @memory.limit, align 8
  %mapped = load i64, ptr %mapped_at, align 8
  %total = add i64 %mapped, %bytes
  %fits = icmp ule i64 %total, %limit
  br i1 %fits, label %yes, label %trim
trim:
  call void @memory.trim()
  %mapped1 = load i64, ptr %mapped_at, align 8
  %total1 = add i64 %mapped1, %bytes
  %fits1 = icmp ule i64 %total1, %limit
  ret i1 %fits1
yes:
  ret i1 true
}

; Header of a new block, which begins 64 bytes behind `start`.
define private ptr @memory.head(ptr %start, i64 %class, i64 %size, ptr %mapping, i64 %length) {
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

; A large block: its own mapping, in whole huge pages.
define private ptr @memory.map_block(i64 %class, i64 %size) noinline {
entry:
  %up = add i64 %size, 2097151
  %length = and i64 %up, -2097152
  %mapping = call ptr @memory.map(i64 %length)
  %is_null = icmp eq ptr %mapping, null
  br i1 %is_null, label %none, label %some
some:
  %block = call ptr @memory.head(ptr %mapping, i64 %class, i64 %size, ptr %mapping, i64 %length)
  ret ptr %block
none:
  ret ptr null
}

define private ptr @memory.map(i64 %length) {
entry:
  %admitted = call i1 @memory.admit(i64 %length)
  br i1 %admitted, label %map, label %none
map:
  %first = call ptr @pages.map(i64 %length)
  %is_first = icmp ne ptr %first, null
  br i1 %is_first, label %count, label %trim
trim:
  call void @memory.trim()
  %second = call ptr @pages.map(i64 %length)
  %is_second = icmp ne ptr %second, null
  br i1 %is_second, label %count, label %none
count:
  %mapping = phi ptr [ %first, %map ], [ %second, %trim ]
  %mapped = call i64 @memory.count(i64 4, i64 %length)
  %mappings = call i64 @memory.count(i64 7, i64 1)
  ret ptr %mapping
none:
  ret ptr null
}

; A small block: cut from the slab.  What is left of a slab when it is too small is lost (at most one block's size).
define private ptr @memory.cut_block(i64 %class, i64 %size) noinline {
entry:
  %left = load i64, ptr @memory.slab_left, align 8
  %enough = icmp uge i64 %left, %size
  br i1 %enough, label %cut, label %fetch
fetch:
  %slab = call ptr @memory.map(i64 16777216)
  %is_null = icmp eq ptr %slab, null
  br i1 %is_null, label %none, label %install
install:
  store ptr %slab, ptr @memory.slab, align 8
  store i64 16777216, ptr @memory.slab_left, align 8
  br label %cut
cut:
  %start = load ptr, ptr @memory.slab, align 8
  %available = load i64, ptr @memory.slab_left, align 8
  %after = getelementptr inbounds i8, ptr %start, i64 %size
  %remaining = sub i64 %available, %size
  store ptr %after, ptr @memory.slab, align 8
  store i64 %remaining, ptr @memory.slab_left, align 8
  %block = call ptr @memory.head(ptr %start, i64 %class, i64 %size, ptr null, i64 0)
  ret ptr %block
none:
  ret ptr null
}

define private void @memory.unmap_block(ptr %block) {
  %mapping_at = getelementptr inbounds i8, ptr %block, i64 -48
  %mapping = load ptr, ptr %mapping_at, align 8
  %length_at = getelementptr inbounds i8, ptr %block, i64 -40
  %length = load i64, ptr %length_at, align 8
  %negative = sub i64 0, %length
  %mapped = call i64 @memory.count(i64 4, i64 %negative)
  call void @pages.unmap(ptr %mapping, i64 %length)
  ret void
}

; Unmap every large block that waits in a list.  Classes of large blocks begin at 8 * 17 (a megabyte is 8 << 17).
define private void @memory.trim() noinline cold {
entry:
  br label %list
list:
  %class = phi i64 [ 136, %entry ], [ %class1, %next ]
  %at = getelementptr inbounds [512 x ptr], ptr @memory.lists, i64 0, i64 %class
  br label %head
head:
  %block = load ptr, ptr %at, align 8
  %is_empty = icmp eq ptr %block, null
  br i1 %is_empty, label %next, label %drop
drop:
  %following = load ptr, ptr %block, align 8
  store ptr %following, ptr %at, align 8
  %size_at = getelementptr inbounds i8, ptr %block, i64 -56
  %size = load i64, ptr %size_at, align 8
  %negative = sub i64 0, %size
  %cached = call i64 @memory.count(i64 5, i64 %negative)
  call void @memory.unmap_block(ptr %block)
  br label %head
next:
  %class1 = add i64 %class, 1
  %more = icmp ult i64 %class1, 512
  br i1 %more, label %list, label %done
done:
  ret void
}

; ------------------------------------------------------------------------------------------------------- for Python

define void @hlojit_memory_trim() {
  call void @memory.acquire()
  call void @memory.trim()
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

define ptr @hlojit_memory_counters() {
  ret ptr @memory.counters
}

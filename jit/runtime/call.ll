; The call path from Python.
;
; PyObject *hlojit_call(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
;
; is the C function behind every executable (METH_FASTCALL).  `self` is a tuple whose first item is a bytes object: the call
; record (layout.py).  Arguments that are plain arrays of exactly the expected dtype and shape are taken as they are;
; anything else goes to the record's Python callable `otherwise`, which converts and calls again or explains the mistake.
;
; The offsets of fields in Python's and NumPy's objects (@offset.*) are measured at import: see objects.py.

@PyArray_Type = external global i8
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare i32 @PyArray_SetBaseObject(ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyCapsule_New(ptr, ptr, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare ptr @PyErr_Occurred()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @hlojit_execute(ptr, ptr, ptr)
declare ptr @hlojit_allocate(i64)
declare void @hlojit_release(ptr)

@name.block = private constant [13 x i8] c"hlojit.block\00"
@format.explain = private constant [4 x i8] c"iLL\00"

; calls, kernels, bytes moved, launches on several threads
@call.counters = internal global [4 x i64] zeroinitializer, align 64

define ptr @hlojit_call_counters() {
  ret ptr @call.counters
}

; Read-modify-write without a lock: under the GIL this is exact, and counters may lose a step in a free-threaded Python.
define private void @call.count(i64 %number, i64 %change) alwaysinline {
  %at = getelementptr inbounds [4 x i64], ptr @call.counters, i64 0, i64 %number
  %before = load atomic i64, ptr %at monotonic, align 8
  %after = add i64 %before, %change
  store atomic i64 %after, ptr %at monotonic, align 8
  ret void
}


; ------------------------------------------------------------------------------------------------------- output arrays

; Destructor of the capsule that is an output's base: when the last view dies, the block returns to the pool.
define private void @block.destroy(ptr %capsule) {
  %block = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @name.block)
  call void @hlojit_release(ptr %block)
  ret void
}

; A NumPy array over a block, which it then owns; null (exception pending, block released) if Python is out of memory.
define private ptr @array.make(ptr %dtype, i64 %rank, ptr %shape, ptr %block) {
entry:
  %capsule = call ptr @PyCapsule_New(ptr %block, ptr @name.block, ptr @block.destroy)
  %no_capsule = icmp eq ptr %capsule, null
  br i1 %no_capsule, label %fail, label %make
make:
  call void @Py_IncRef(ptr %dtype)   ; the next call steals a reference
  %rank32 = trunc i64 %rank to i32
  ; 0x501: C-contiguous, aligned, writable
  %array = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %dtype, i32 %rank32, ptr %shape, ptr null, ptr %block, i32 1281, ptr null)
  %no_array = icmp eq ptr %array, null
  br i1 %no_array, label %drop, label %own
own:
  %status = call i32 @PyArray_SetBaseObject(ptr %array, ptr %capsule)
  ret ptr %array
drop:
  call void @Py_DecRef(ptr %capsule)
  ret ptr null
fail:
  call void @hlojit_release(ptr %block)
  ret ptr null
}

; ----------------------------------------------------------------------------------------------------------- execution

; Run the program, without the GIL unless it is short.  `slots` holds the inputs and outputs.
; Returns 0, or with a Python exception pending: -1 if the program had not begun, -2 if it had.
define i32 @hlojit_run(ptr %record, ptr %slots) {
entry:
  %context = alloca [192 x i8], align 64
  call void @llvm.memset.p0.i64(ptr align 64 %context, i8 0, i64 192, i1 false)
  %thread_at = call ptr @context.thread(ptr %context)
  %self = call i64 @PyThread_get_thread_ident()
  store i64 %self, ptr %thread_at, align 8
  %release_at = call ptr @call.release_gil(ptr %record)
  %release = load i64, ptr %release_at, align 8
  %keeps_gil = icmp eq i64 %release, 0
  br i1 %keeps_gil, label %go, label %give
give:
  call void @hlojit_leave_python(ptr %context)
  br label %go
go:
  %status = call i32 @hlojit_execute(ptr %context, ptr %record, ptr %slots)
  call void @hlojit_enter_python(ptr %context)
  call void @call.count(i64 0, i64 1)
  %kernels_at = call ptr @context.kernels(ptr %context)
  %kernels = load i64, ptr %kernels_at, align 8
  call void @call.count(i64 1, i64 %kernels)
  %moved_at = call ptr @context.bytes_moved(ptr %context)
  %moved = load i64, ptr %moved_at, align 8
  call void @call.count(i64 2, i64 %moved)
  %launches_at = call ptr @context.launches(ptr %context)
  %launches = load i64, ptr %launches_at, align 8
  call void @call.count(i64 3, i64 %launches)

  %is_good = icmp eq i32 %status, 0
  br i1 %is_good, label %good, label %bad
good:
  ret i32 0
bad:
  %pending = call ptr @PyErr_Occurred()
  %is_pending = icmp ne ptr %pending, null
  br i1 %is_pending, label %failed, label %explain
explain:
  %detail0_at = call ptr @context.detail0(ptr %context)
  %detail0 = load i64, ptr %detail0_at, align 8
  %detail1_at = call ptr @context.detail1(ptr %context)
  %detail1 = load i64, ptr %detail1_at, align 8
  call void @raise(ptr %record, i32 %status, i64 %detail0, i64 %detail1)
  br label %failed
failed:
  %record_at = call ptr @context.record(ptr %context)
  %begun = load ptr, ptr %record_at, align 8
  %has_begun = icmp ne ptr %begun, null
  %failure = select i1 %has_begun, i32 -2, i32 -1
  ret i32 %failure
}

; Let Python raise the error.
define private void @raise(ptr %record, i32 %status, i64 %detail0, i64 %detail1) noinline cold {
entry:
  %explain_at = call ptr @call.explain(ptr %record)
  %explain = load ptr, ptr %explain_at, align 8
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr %explain, ptr @format.explain, i32 %status, i64 %detail0, i64 %detail1)
  %is_null = icmp eq ptr %result, null
  br i1 %is_null, label %done, label %drop
drop:
  call void @Py_DecRef(ptr %result)
  br label %done
done:
  ret void
}

; ------------------------------------------------------------------------------------------------------------ the call

define ptr @hlojit_call(ptr %self, ptr %arguments, i64 %count, ptr %keywords) {
entry:
  %item_offset = load i64, ptr @offset.tuple_item, align 8
  %item_at = getelementptr inbounds i8, ptr %self, i64 %item_offset
  %item = load ptr, ptr %item_at, align 8
  %bytes_offset = load i64, ptr @offset.bytes_data, align 8
  %record = getelementptr inbounds i8, ptr %item, i64 %bytes_offset

  %inputs_at = call ptr @call.inputs(ptr %record)
  %inputs = load i64, ptr %inputs_at, align 8
  %outputs_at = call ptr @call.outputs(ptr %record)
  %outputs = load i64, ptr %outputs_at, align 8
  %is_count = icmp eq i64 %count, %inputs
  %no_keywords = icmp eq ptr %keywords, null
  %is_usual = and i1 %is_count, %no_keywords
  br i1 %is_usual, label %lay_out, label %unusual

lay_out:
  ; Slots: inputs, outputs, arena, constants.  Behind them the results' objects.
  %constants_at = call ptr @call.constants(ptr %record)
  %constants = load i64, ptr %constants_at, align 8
  %arrays_count = add i64 %inputs, %outputs
  %slots_count = add i64 %arrays_count, %constants
  %results_begin = add i64 %slots_count, 1
  %words = add i64 %results_begin, %outputs
  ; A thread's stack may be small.
  %is_large = icmp ugt i64 %words, 1024
  br i1 %is_large, label %reserve, label %on_stack, !prof !0
on_stack:
  %stack = alloca i64, i64 %words, align 16
  %stack_results = getelementptr inbounds i64, ptr %stack, i64 %results_begin
  %direct = call ptr @call.with_slots(ptr %record, ptr %arguments, i64 %inputs, i64 %outputs, ptr %stack, ptr %stack_results)
  ret ptr %direct
reserve:
  %large = call ptr @call.with_large_slots(ptr %record, ptr %arguments, i64 %inputs, i64 %outputs, i64 %words, i64 %results_begin)
  ret ptr %large
unusual:
  %answer = call ptr @call.otherwise_with(ptr %record, ptr %arguments, i64 %count, ptr %keywords)
  ret ptr %answer
}

; With slots from the memory pool.
define private ptr @call.with_large_slots(ptr %record, ptr %arguments, i64 %inputs, i64 %outputs, i64 %words, i64 %results_begin) noinline cold {
entry:
  %bytes = shl i64 %words, 3
  %slots = call ptr @hlojit_allocate(i64 %bytes)
  %is_refused = icmp eq ptr %slots, null
  br i1 %is_refused, label %exhausted, label %go
go:
  %results = getelementptr inbounds i64, ptr %slots, i64 %results_begin
  %answer = call ptr @call.with_slots(ptr %record, ptr %arguments, i64 %inputs, i64 %outputs, ptr %slots, ptr %results)
  call void @hlojit_release(ptr %slots)
  ret ptr %answer
exhausted:
  call void @raise(ptr %record, i32 2, i64 %bytes, i64 0)
  ret ptr null
}

; Arguments that are not what the native path takes, or not of the right number.
define private ptr @call.otherwise_with(ptr %record, ptr %arguments, i64 %count, ptr %keywords) {
  %otherwise_at = call ptr @call.otherwise(ptr %record)
  %otherwise = load ptr, ptr %otherwise_at, align 8
  %answer = call ptr @PyObject_Vectorcall(ptr %otherwise, ptr %arguments, i64 %count, ptr %keywords)
  ret ptr %answer
}

; The call with as many arguments as there are inputs; `slots` and `results` have room for what is written there.
define private ptr @call.with_slots(ptr %record, ptr %arguments, i64 %inputs, i64 %outputs, ptr %slots, ptr %results) alwaysinline {
lay_out:
  %descriptions = getelementptr inbounds i8, ptr %record, i64 112   ; CALL_BYTES
  br label %input

  ; --- inputs
input:
  %number = phi i64 [ 0, %lay_out ], [ %number1, %accept ]
  %description = phi ptr [ %descriptions, %lay_out ], [ %after, %accept ]
  %more = icmp ult i64 %number, %inputs
  br i1 %more, label %type, label %outputs_begin
type:
  %argument_at = getelementptr inbounds ptr, ptr %arguments, i64 %number
  %argument = load ptr, ptr %argument_at, align 8
  %type_offset = load i64, ptr @offset.type, align 8
  %type_at = getelementptr inbounds i8, ptr %argument, i64 %type_offset
  %type_of = load ptr, ptr %type_at, align 8
  %is_array = icmp eq ptr %type_of, @PyArray_Type
  br i1 %is_array, label %dtype, label %unusual
dtype:
  %expected_dtype = load ptr, ptr %description, align 8
  %dtype_offset = load i64, ptr @offset.array_dtype, align 8
  %dtype_at = getelementptr inbounds i8, ptr %argument, i64 %dtype_offset
  %dtype_of = load ptr, ptr %dtype_at, align 8
  %is_dtype = icmp eq ptr %dtype_of, %expected_dtype
  br i1 %is_dtype, label %form, label %unusual
form:
  %rank_at = getelementptr inbounds i64, ptr %description, i64 1
  %rank = load i64, ptr %rank_at, align 8
  %rank32 = trunc i64 %rank to i32
  %rank_offset = load i64, ptr @offset.array_rank, align 8
  %array_rank_at = getelementptr inbounds i8, ptr %argument, i64 %rank_offset
  %array_rank = load i32, ptr %array_rank_at, align 4
  %is_rank = icmp eq i32 %array_rank, %rank32
  %flags_offset = load i64, ptr @offset.array_flags, align 8
  %flags_at = getelementptr inbounds i8, ptr %argument, i64 %flags_offset
  %flags = load i32, ptr %flags_at, align 4
  %needed = and i32 %flags, 257   ; C-contiguous and aligned
  %is_plain = icmp eq i32 %needed, 257
  %is_form = and i1 %is_rank, %is_plain
  br i1 %is_form, label %shape, label %unusual
shape:
  %extents = getelementptr inbounds i64, ptr %description, i64 2
  %shape_offset = load i64, ptr @offset.array_shape, align 8
  %shape_at = getelementptr inbounds i8, ptr %argument, i64 %shape_offset
  %array_shape = load ptr, ptr %shape_at, align 8
  br label %extent
extent:
  %dimension = phi i64 [ 0, %shape ], [ %dimension1, %compare ]
  %in_shape = icmp ult i64 %dimension, %rank
  br i1 %in_shape, label %compare, label %accept
compare:
  %expected_at = getelementptr inbounds i64, ptr %extents, i64 %dimension
  %expected = load i64, ptr %expected_at, align 8
  %actual_at = getelementptr inbounds i64, ptr %array_shape, i64 %dimension
  %actual = load i64, ptr %actual_at, align 8
  %dimension1 = add i64 %dimension, 1
  %is_extent = icmp eq i64 %actual, %expected
  br i1 %is_extent, label %extent, label %unusual
accept:
  %data_offset = load i64, ptr @offset.array_data, align 8
  %data_at = getelementptr inbounds i8, ptr %argument, i64 %data_offset
  %data = load ptr, ptr %data_at, align 8
  %slot = getelementptr inbounds ptr, ptr %slots, i64 %number
  store ptr %data, ptr %slot, align 8
  %after = getelementptr inbounds i64, ptr %extents, i64 %rank
  %number1 = add i64 %number, 1
  br label %input

  ; --- outputs
outputs_begin:
  %donated_at = call ptr @call.donated(ptr %record)
  %donated = load i64, ptr %donated_at, align 8
  %gives = icmp ne i64 %donated, 0
  br i1 %gives, label %claim, label %output
claim:
  %is_claimed = call i1 @donation.claim(ptr %record, ptr %arguments, ptr %slots)
  br i1 %is_claimed, label %output, label %unusual
output:
  %made = phi i64 [ 0, %outputs_begin ], [ 0, %claim ], [ %made1, %keep ]
  %wanted = phi ptr [ %description, %outputs_begin ], [ %description, %claim ], [ %wanted_after, %keep ]
  %more_outputs = icmp ult i64 %made, %outputs
  br i1 %more_outputs, label %allocate, label %run
allocate:
  %output_dtype = load ptr, ptr %wanted, align 8
  %output_rank_at = getelementptr inbounds i64, ptr %wanted, i64 1
  %output_rank = load i64, ptr %output_rank_at, align 8
  %output_bytes_at = getelementptr inbounds i64, ptr %wanted, i64 2
  %output_bytes = load i64, ptr %output_bytes_at, align 8
  %output_shape = getelementptr inbounds i64, ptr %wanted, i64 3
  %is_shared = icmp slt i64 %output_bytes, 0
  br i1 %is_shared, label %share, label %take
share:
  %giver = xor i64 %output_bytes, -1
  %given_at = getelementptr inbounds ptr, ptr %arguments, i64 %giver
  %given = load ptr, ptr %given_at, align 8
  %given_slot = getelementptr inbounds ptr, ptr %slots, i64 %giver
  %given_data = load ptr, ptr %given_slot, align 8
  %shared = call ptr @donation.array(ptr %output_dtype, i64 %output_rank, ptr %output_shape, ptr %given)
  %no_shared = icmp eq ptr %shared, null
  br i1 %no_shared, label %unwind, label %keep
take:
  %block = call ptr @hlojit_allocate(i64 %output_bytes)
  %no_block = icmp eq ptr %block, null
  br i1 %no_block, label %exhausted, label %wrap
wrap:
  %array = call ptr @array.make(ptr %output_dtype, i64 %output_rank, ptr %output_shape, ptr %block)
  %no_array = icmp eq ptr %array, null
  br i1 %no_array, label %unwind, label %keep
keep:
  %made_array = phi ptr [ %array, %wrap ], [ %shared, %share ]
  %made_data = phi ptr [ %block, %wrap ], [ %given_data, %share ]
  %result_at = getelementptr inbounds ptr, ptr %results, i64 %made
  store ptr %made_array, ptr %result_at, align 8
  %output_number = add i64 %inputs, %made
  %output_slot = getelementptr inbounds ptr, ptr %slots, i64 %output_number
  store ptr %made_data, ptr %output_slot, align 8
  %wanted_after = getelementptr inbounds i64, ptr %output_shape, i64 %output_rank
  %made1 = add i64 %made, 1
  br label %output
exhausted:
  call void @raise(ptr %record, i32 2, i64 %output_bytes, i64 0)
  br label %unwind

  ; --- the program
run:
  %status = call i32 @hlojit_run(ptr %record, ptr %slots)
  %is_good = icmp eq i32 %status, 0
  %not_begun = icmp eq i32 %status, -1
  br i1 %is_good, label %finish, label %unwind
finish:
  %is_single = icmp eq i64 %outputs, 1
  br i1 %is_single, label %single, label %several
single:
  %only = load ptr, ptr %results, align 8
  ret ptr %only
several:
  %tuple = call ptr @PyTuple_New(i64 %outputs)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %unwind, label %fill
fill:
  %filled = phi i64 [ 0, %several ], [ %filled1, %put ]
  %more_items = icmp ult i64 %filled, %outputs
  br i1 %more_items, label %put, label %give
put:
  %item_from = getelementptr inbounds ptr, ptr %results, i64 %filled
  %result = load ptr, ptr %item_from, align 8
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %filled, ptr %result)
  %filled1 = add i64 %filled, 1
  br label %fill
give:
  ret ptr %tuple

  ; --- failure: drop the outputs made so far; an exception is pending
unwind:
  %to_drop = phi i64 [ %made, %exhausted ], [ %made, %wrap ], [ %made, %share ], [ %outputs, %run ], [ %outputs, %several ]
  ; What was donated is given back if nothing can have written to it.
  %is_intact = phi i1 [ true, %exhausted ], [ true, %wrap ], [ true, %share ], [ %not_begun, %run ], [ false, %several ]
  %gives_back = and i1 %gives, %is_intact
  br label %drop
drop:
  %left = phi i64 [ %to_drop, %unwind ], [ %left1, %release ]
  %some_left = icmp ne i64 %left, 0
  br i1 %some_left, label %release, label %failed
release:
  %left1 = sub i64 %left, 1
  %drop_at = getelementptr inbounds ptr, ptr %results, i64 %left1
  %dropped = load ptr, ptr %drop_at, align 8
  call void @Py_DecRef(ptr %dropped)
  br label %drop
failed:
  br i1 %gives_back, label %return, label %null
return:
  call void @donation.return(ptr %record, ptr %arguments, i64 %donated)
  br label %null
null:
  ret ptr null

unusual:
  %answer = call ptr @call.otherwise_with(ptr %record, ptr %arguments, i64 %inputs, ptr null)
  ret ptr %answer
}

!0 = !{!"branch_weights", i32 1, i32 1000}

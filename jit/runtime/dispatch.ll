; Calls of jitted functions.
;
; PyObject *hlojit_dispatch(PyObject *self, PyTypeObject *defining, PyObject *const *arguments, size_t count, PyObject *keywords)
;
; is their `__call__` (a method of METH_METHOD|METH_FASTCALL|METH_KEYWORDS).  A slot of `self` holds a tuple of entries, one for each
; kind of call that was seen, made by hlojit.tracing.entries: how such a call is recognized (matching.ll), the program that it runs, and
; what it returns (giving.ll).  A call that no entry recognizes goes to Python, where all of this is defined.

@PyExc_Exception = external global ptr
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @PyErr_ExceptionMatches(ptr)
declare ptr @PyException_GetTraceback(ptr)
declare i32 @PyException_SetTraceback(ptr, ptr)

@dispatch.slot = internal global i64 0        ; where the entries hang on `self`
@dispatch.otherwise = internal global ptr null ; Python function (self, *arguments, **keywords)
@dispatch.report = internal global ptr null    ; Python function (error)
@dispatch.calls = internal global i64 0        ; calls that an entry answered

define void @hlojit_dispatch_setup(i64 %slot, ptr %otherwise, ptr %report) {
  store i64 %slot, ptr @dispatch.slot, align 8
  store ptr %otherwise, ptr @dispatch.otherwise, align 8
  store ptr %report, ptr @dispatch.report, align 8
  ret void
}

define i64 @hlojit_dispatched() {
  %calls = load i64, ptr @dispatch.calls, align 8
  ret i64 %calls
}

define ptr @hlojit_dispatch(ptr %self, ptr %defining, ptr %arguments, i64 %count, ptr %keywords) {
entry:
  %answer_at = alloca ptr, align 8
  %slot = load i64, ptr @dispatch.slot, align 8
  %slot_at = getelementptr inbounds i8, ptr %self, i64 %slot
  %entries = load ptr, ptr %slot_at, align 8
  %is_new = icmp eq ptr %entries, null
  br i1 %is_new, label %python, label %hold
hold:
  ; Another thread may put others in their place.
  call void @Py_IncRef(ptr %entries)
  %size = call i64 @tuple.size(ptr %entries)
  br label %head
head:
  %number = phi i64 [ 0, %hold ], [ %number1, %follow ]
  %more = icmp ult i64 %number, %size
  br i1 %more, label %try, label %unknown
try:
  %each = call ptr @tuple.item(ptr %entries, i64 %number)
  %bytes = call ptr @tuple.item(ptr %each, i64 0)
  %bytes_offset = load i64, ptr @offset.bytes_data, align 8
  %record = getelementptr inbounds i8, ptr %bytes, i64 %bytes_offset
  %is_known = call i1 @dispatch.answer(ptr %record, ptr %arguments, i64 %count, ptr %keywords, ptr %answer_at)
  br i1 %is_known, label %known, label %follow
follow:
  %number1 = add i64 %number, 1
  br label %head
known:
  %answer = load ptr, ptr %answer_at, align 8
  call void @Py_DecRef(ptr %entries)
  %calls = load i64, ptr @dispatch.calls, align 8
  %calls1 = add i64 %calls, 1
  store i64 %calls1, ptr @dispatch.calls, align 8
  ret ptr %answer
unknown:
  call void @Py_DecRef(ptr %entries)
  br label %python
python:
  %else = call ptr @dispatch.in_python(ptr %self, ptr %arguments, i64 %count, ptr %keywords)
  ret ptr %else
}

; The call in Python: otherwise(self, *arguments, **keywords).
define private ptr @dispatch.in_python(ptr %self, ptr %arguments, i64 %count, ptr %keywords) noinline {
entry:
  %otherwise = load ptr, ptr @dispatch.otherwise, align 8
  br label %given_some
given_some:
  %no_keywords = icmp eq ptr %keywords, null
  br i1 %no_keywords, label %room, label %named
named:
  %names = call i64 @tuple.size(ptr %keywords)
  br label %room
room:
  %more = phi i64 [ 0, %given_some ], [ %names, %named ]
  %given = add i64 %count, %more
  %words = add i64 %given, 1
  %positional = add i64 %count, 1
  ; A thread's stack may be small.
  %is_large = icmp ugt i64 %words, 1024
  br i1 %is_large, label %reserve, label %on_stack
on_stack:
  %stack = alloca ptr, i64 %words, align 16
  br label %fill
reserve:
  %bytes = shl i64 %words, 3
  %block = call ptr @hlojit_allocate(i64 %bytes)
  %is_refused = icmp eq ptr %block, null
  br i1 %is_refused, label %exhausted, label %fill
fill:
  %vector = phi ptr [ %stack, %on_stack ], [ %block, %reserve ]
  store ptr %self, ptr %vector, align 8
  %rest = getelementptr inbounds ptr, ptr %vector, i64 1
  %given_bytes = shl i64 %given, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %rest, ptr align 8 %arguments, i64 %given_bytes, i1 false)
  %answer = call ptr @PyObject_Vectorcall(ptr %otherwise, ptr %vector, i64 %positional, ptr %keywords)
  br i1 %is_large, label %release, label %done
release:
  call void @hlojit_release(ptr %vector)
  br label %done
done:
  ret ptr %answer
exhausted:
  %error = call ptr @PyErr_NoMemory()
  ret ptr null
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @PyErr_NoMemory()

; Whether the call is one of an entry's; then `answer` is its result, or null with an exception pending.
define private i1 @dispatch.answer(ptr %record, ptr %arguments, i64 %count, ptr %keywords, ptr %answer) noinline {
entry:
  %positional_at = call ptr @entry.positional(ptr %record)
  %positional = load i64, ptr %positional_at, align 8
  %is_count = icmp eq i64 %count, %positional
  br i1 %is_count, label %keyword, label %no
keyword:
  %named_at = call ptr @entry.named(ptr %record)
  %named = load i64, ptr %named_at, align 8
  %no_keywords = icmp eq ptr %keywords, null
  br i1 %no_keywords, label %compare, label %names
names:
  %names_count = call i64 @tuple.size(ptr %keywords)
  br label %compare
compare:
  %given_named = phi i64 [ 0, %keyword ], [ %names_count, %names ]
  %is_named = icmp eq i64 %given_named, %named
  br i1 %is_named, label %lay_out, label %no
lay_out:
  %given = add i64 %positional, %named
  %frame = alloca [64 x i8], align 16   ; FRAME_BYTES
  %values_room_at = call ptr @entry.values(ptr %record)
  %values_room = load i64, ptr %values_room_at, align 8
  %leaves_room_at = call ptr @entry.leaves(ptr %record)
  %leaves_room = load i64, ptr %leaves_room_at, align 8
  %stack_room_at = call ptr @entry.stack(ptr %record)
  %stack_room = load i64, ptr %stack_room_at, align 8
  %values = alloca ptr, i64 %values_room, align 16
  %leaves = alloca ptr, i64 %leaves_room, align 16
  %stack = alloca ptr, i64 %stack_room, align 16
  %given_bytes = shl i64 %given, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %values, ptr align 8 %arguments, i64 %given_bytes, i1 false)
  %values_at = call ptr @frame.values(ptr %frame)
  store ptr %values, ptr %values_at, align 8
  %count_at = call ptr @frame.count(ptr %frame)
  store i64 %given, ptr %count_at, align 8
  %leaves_at = call ptr @frame.leaves(ptr %frame)
  store ptr %leaves, ptr %leaves_at, align 8
  %leaf_count_at = call ptr @frame.leaf_count(ptr %frame)
  store i64 0, ptr %leaf_count_at, align 8
  %stack_at = call ptr @frame.stack(ptr %frame)
  store ptr %stack, ptr %stack_at, align 8
  %height_at = call ptr @frame.height(ptr %frame)
  store i64 0, ptr %height_at, align 8
  %keywords_at = call ptr @frame.keywords(ptr %frame)
  store ptr %keywords, ptr %keywords_at, align 8

  %begin = getelementptr inbounds i8, ptr %record, i64 80   ; ENTRY_BYTES
  %matched = call ptr @interpret.match(ptr %frame, ptr %begin)
  %is_mismatch = icmp eq ptr %matched, null
  br i1 %is_mismatch, label %mismatch, label %run
mismatch:
  %pending = call ptr @PyErr_Occurred()
  %no_error = icmp eq ptr %pending, null
  br i1 %no_error, label %leave, label %judge
judge:
  ; Python raises it again, but for an interrupt, which came while code of the user's took an object apart.
  %any = load ptr, ptr @PyExc_Exception, align 8
  %matches = call i32 @PyErr_ExceptionMatches(ptr %any)
  %is_exception = icmp ne i32 %matches, 0
  br i1 %is_exception, label %clear, label %interrupted
interrupted:
  store ptr null, ptr %answer, align 8
  call void @frame.release(ptr %frame, i64 %given)
  ret i1 true
clear:
  call void @PyErr_Clear()
  br label %leave
leave:
  call void @frame.release(ptr %frame, i64 %given)
  ret i1 false

run:
  %callee_at = call ptr @entry.callee(ptr %record)
  %callee = load ptr, ptr %callee_at, align 8
  %function_at = call ptr @entry.function(ptr %record)
  %function = load ptr, ptr %function_at, align 8
  %leaf_count = load i64, ptr %leaf_count_at, align 8
  %is_python = icmp eq ptr %function, null
  br i1 %is_python, label %call, label %direct, !prof !0
direct:
  %run_made = call ptr %function(ptr %callee, ptr %leaves, i64 %leaf_count, ptr null)
  br label %made
call:
  %called_made = call ptr @PyObject_Vectorcall(ptr %callee, ptr %leaves, i64 %leaf_count, ptr null)
  br label %made
made:
  %program_made = phi ptr [ %run_made, %direct ], [ %called_made, %call ]
  %has_failed = icmp eq ptr %program_made, null
  br i1 %has_failed, label %failed, label %finish
finish:
  %result = call ptr @dispatch.finish(ptr %record, ptr %frame, ptr %program_made)
  %no_result = icmp eq ptr %result, null
  br i1 %no_result, label %failed, label %good
good:
  store ptr %result, ptr %answer, align 8
  call void @frame.release(ptr %frame, i64 %given)
  ret i1 true
failed:
  store ptr null, ptr %answer, align 8
  call void @dispatch.tell()
  call void @frame.release(ptr %frame, i64 %given)
  ret i1 true
no:
  ret i1 false
}

; Release what the frame owns: the values behind the first `given`.
define private void @frame.release(ptr %frame, i64 %given) alwaysinline {
entry:
  %values_at = call ptr @frame.values(ptr %frame)
  %values = load ptr, ptr %values_at, align 8
  %count_at = call ptr @frame.count(ptr %frame)
  %count = load i64, ptr %count_at, align 8
  br label %head
head:
  %number = phi i64 [ %given, %entry ], [ %number1, %drop ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %drop, label %done
drop:
  %value = call ptr @pointer(ptr %values, i64 %number)
  call void @Py_DecRef(ptr %value)
  %number1 = add i64 %number, 1
  br label %head
done:
  ret void
}

; What the call returns, of what the program did, whose reference is taken; null with an exception pending.
define private ptr @dispatch.finish(ptr %record, ptr %frame, ptr %made) alwaysinline {
entry:
  %giving_at = call ptr @entry.giving(ptr %record)
  %giving = load ptr, ptr %giving_at, align 8
  %as_it_is = icmp eq ptr %giving, null
  br i1 %as_it_is, label %plain, label %form
plain:
  ret ptr %made
form:
  %formed = call ptr @dispatch.form(ptr %record, ptr %frame, ptr %made, ptr %giving)
  ret ptr %formed
}

define private ptr @dispatch.form(ptr %record, ptr %frame, ptr %made, ptr %giving) noinline {
entry:
  %only = alloca ptr, align 8
  store ptr %made, ptr %only, align 8
  %items_at = call ptr @frame.items(ptr %frame)
  %results_at = call ptr @entry.results(ptr %record)
  %results = load i64, ptr %results_at, align 8
  %type = call ptr @object.type(ptr %made)
  %is_tuple = icmp eq ptr %type, @PyTuple_Type
  %is_single = icmp eq i64 %results, 1
  br i1 %is_tuple, label %several, label %single
single:
  store ptr %only, ptr %items_at, align 8
  br i1 %is_single, label %native, label %python
several:
  %size = call i64 @tuple.size(ptr %made)
  %is_size = icmp eq i64 %size, %results
  %item_offset = load i64, ptr @offset.tuple_item, align 8
  %items = getelementptr inbounds i8, ptr %made, i64 %item_offset
  store ptr %items, ptr %items_at, align 8
  br i1 %is_size, label %native, label %python
native:
  %height_at = call ptr @frame.height(ptr %frame)
  %done = call ptr @interpret.give(ptr %frame, ptr %giving)
  %is_done = icmp ne ptr %done, null
  br i1 %is_done, label %take, label %leave
take:
  %stack = call ptr @frame.pop(ptr %frame, i64 1)
  %result = load ptr, ptr %stack, align 8
  call void @Py_DecRef(ptr %made)
  ret ptr %result
leave:
  ; What is on the stack is released.
  %height = load i64, ptr %height_at, align 8
  %no_more = icmp eq i64 %height, 0
  br i1 %no_more, label %judge, label %drop
drop:
  %top = call ptr @frame.pop(ptr %frame, i64 1)
  %dropped = load ptr, ptr %top, align 8
  call void @Py_DecRef(ptr %dropped)
  br label %leave
judge:
  %pending = call ptr @PyErr_Occurred()
  %is_pending = icmp ne ptr %pending, null
  br i1 %is_pending, label %failed, label %python
failed:
  call void @Py_DecRef(ptr %made)
  ret ptr null
python:
  %leaf_count_at = call ptr @frame.leaf_count(ptr %frame)
  %leaf_count = load i64, ptr %leaf_count_at, align 8
  %leaves = call ptr @PyTuple_New(i64 %leaf_count)
  %no_leaves = icmp eq ptr %leaves, null
  br i1 %no_leaves, label %failed, label %head
head:
  %number = phi i64 [ 0, %python ], [ %number1, %put ]
  %more = icmp ult i64 %number, %leaf_count
  br i1 %more, label %put, label %ask
put:
  %leaf = call ptr @frame.leaf_at(ptr %frame, i64 %number)
  call void @Py_IncRef(ptr %leaf)
  %status = call i32 @PyTuple_SetItem(ptr %leaves, i64 %number, ptr %leaf)
  %number1 = add i64 %number, 1
  br label %head
ask:
  %finish_at = call ptr @entry.finish(ptr %record)
  %finish = load ptr, ptr %finish_at, align 8
  %answer = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %finish, ptr %made, ptr %leaves, ptr null)
  call void @Py_DecRef(ptr %leaves)
  call void @Py_DecRef(ptr %made)
  ret ptr %answer
}

@PyTuple_Type = external global i8
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)

; Have Python tell the exception that is pending as one of the user's function.
define private void @dispatch.tell() noinline cold {
entry:
  %type_at = alloca ptr, align 8
  %error_at = alloca ptr, align 8
  %traceback_at = alloca ptr, align 8
  %any = load ptr, ptr @PyExc_Exception, align 8
  %matches = call i32 @PyErr_ExceptionMatches(ptr %any)
  %is_exception = icmp ne i32 %matches, 0
  br i1 %is_exception, label %fetch, label %done
fetch:
  call void @PyErr_Fetch(ptr %type_at, ptr %error_at, ptr %traceback_at)
  call void @PyErr_NormalizeException(ptr %type_at, ptr %error_at, ptr %traceback_at)
  %error = load ptr, ptr %error_at, align 8
  %traceback = load ptr, ptr %traceback_at, align 8
  %no_traceback = icmp eq ptr %traceback, null
  br i1 %no_traceback, label %report, label %attach
attach:
  %attached = call i32 @PyException_SetTraceback(ptr %error, ptr %traceback)
  br label %report
report:
  %function = load ptr, ptr @dispatch.report, align 8
  %reported = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %function, ptr %error, ptr null)
  %is_reported = icmp ne ptr %reported, null
  br i1 %is_reported, label %restore, label %replace
restore:
  call void @Py_DecRef(ptr %reported)
  br i1 %no_traceback, label %again, label %forget
forget:
  call void @Py_DecRef(ptr %traceback)
  br label %again
again:
  ; The report may have given it another class, and another traceback.
  %old_type = load ptr, ptr %type_at, align 8
  call void @Py_DecRef(ptr %old_type)
  %new_type = call ptr @object.type(ptr %error)
  call void @Py_IncRef(ptr %new_type)
  %new_traceback = call ptr @PyException_GetTraceback(ptr %error)
  call void @PyErr_Restore(ptr %new_type, ptr %error, ptr %new_traceback)
  br label %done
replace:
  ; The report itself failed, which is told in its place.
  call void @Py_DecRef(ptr %error)
  %replaced_type = load ptr, ptr %type_at, align 8
  call void @Py_DecRef(ptr %replaced_type)
  br i1 %no_traceback, label %done, label %forget_too
forget_too:
  call void @Py_DecRef(ptr %traceback)
  br label %done
done:
  ret void
}


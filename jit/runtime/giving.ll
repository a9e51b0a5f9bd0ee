; What a call returns, made of what the program returned: the operations of an entry's second part.
;
; As in matching.ll: `interpret.give` calls @give.NAME(frame, operands).  Values are put on a stack, which the frame owns; null
; means that Python has to do it, or that an exception is pending.

declare i32 @PyArray_CopyInto(ptr, ptr)
declare ptr @PyArray_Scalar(ptr, ptr, ptr)
declare ptr @PyArray_Transpose(ptr, ptr)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i32 @PyObject_SetItem(ptr, ptr, ptr)
declare i32 @PyObject_GenericSetAttr(ptr, ptr, ptr)

; Put a new reference on the stack, and go on if there is one.
define private ptr @frame.push(ptr %frame, ptr %object, ptr %next) alwaysinline {
entry:
  %is_null = icmp eq ptr %object, null
  br i1 %is_null, label %no, label %put
put:
  %stack_at = call ptr @frame.stack(ptr %frame)
  %stack = load ptr, ptr %stack_at, align 8
  %height_at = call ptr @frame.height(ptr %frame)
  %height = load i64, ptr %height_at, align 8
  %place = getelementptr inbounds ptr, ptr %stack, i64 %height
  store ptr %object, ptr %place, align 8
  %height1 = add i64 %height, 1
  store i64 %height1, ptr %height_at, align 8
  ret ptr %next
no:
  ret ptr null
}

; Where the last `count` values of the stack are, which the caller takes.
define private ptr @frame.pop(ptr %frame, i64 %count) alwaysinline {
  %stack_at = call ptr @frame.stack(ptr %frame)
  %stack = load ptr, ptr %stack_at, align 8
  %height_at = call ptr @frame.height(ptr %frame)
  %height = load i64, ptr %height_at, align 8
  %left = sub i64 %height, %count
  store i64 %left, ptr %height_at, align 8
  %place = getelementptr inbounds ptr, ptr %stack, i64 %left
  ret ptr %place
}

; The result of the program that an operation's first operand names.
define private ptr @frame.item(ptr %frame, ptr %at) alwaysinline {
  %number = load i64, ptr %at, align 8
  %items_at = call ptr @frame.items(ptr %frame)
  %items = load ptr, ptr %items_at, align 8
  %item = call ptr @pointer(ptr %items, i64 %number)
  ret ptr %item
}

; Whether a result is an array without dimensions of a dtype.
define private i1 @array.is_number(ptr %array, ptr %dtype) alwaysinline {
entry:
  %type = call ptr @object.type(ptr %array)
  %is_array = icmp eq ptr %type, @PyArray_Type
  br i1 %is_array, label %look, label %no
look:
  %dtype_offset = load i64, ptr @offset.array_dtype, align 8
  %dtype_of = call ptr @array.word(ptr %array, i64 %dtype_offset)
  %is_dtype = icmp eq ptr %dtype_of, %dtype
  %rank_offset = load i64, ptr @offset.array_rank, align 8
  %rank_at = getelementptr inbounds i8, ptr %array, i64 %rank_offset
  %rank = load i32, ptr %rank_at, align 4
  %is_rank = icmp eq i32 %rank, 0
  %is_number = and i1 %is_dtype, %is_rank
  ret i1 %is_number
no:
  ret i1 false
}

; item, dtype: the number of the check that failed, an int32; 0 if none did.
define private ptr @give.check(ptr %frame, ptr %at) alwaysinline {
entry:
  %item = call ptr @frame.item(ptr %frame, ptr %at)
  %dtype = call ptr @pointer(ptr %at, i64 1)
  %is_number = call i1 @array.is_number(ptr %item, ptr %dtype)
  br i1 %is_number, label %look, label %no
look:
  %data = call ptr @array.data(ptr %item)
  %failed = load i32, ptr %data, align 4
  %is_good = icmp eq i32 %failed, 0
  %next = call ptr @next_if(i1 %is_good, ptr %at, i64 2)
  ret ptr %next
no:
  ret ptr null
}

; item, leaf: an argument that was written, if it still is as it was: another thread may have given it another shape or dtype.
define private ptr @give.write(ptr %frame, ptr %at) {
entry:
  %item = call ptr @frame.item(ptr %frame, ptr %at)
  %number = call i64 @word(ptr %at, i64 1)
  %leaf = call ptr @frame.leaf_at(ptr %frame, i64 %number)
  %type = call ptr @object.type(ptr %item)
  %is_array = icmp eq ptr %type, @PyArray_Type
  br i1 %is_array, label %kind, label %no
kind:
  %dtype_offset = load i64, ptr @offset.array_dtype, align 8
  %dtype = call ptr @array.word(ptr %leaf, i64 %dtype_offset)
  %item_dtype = call ptr @array.word(ptr %item, i64 %dtype_offset)
  %is_dtype = icmp eq ptr %dtype, %item_dtype
  %rank_offset = load i64, ptr @offset.array_rank, align 8
  %rank_at = getelementptr inbounds i8, ptr %leaf, i64 %rank_offset
  %rank = load i32, ptr %rank_at, align 4
  %item_rank_at = getelementptr inbounds i8, ptr %item, i64 %rank_offset
  %item_rank = load i32, ptr %item_rank_at, align 4
  %is_rank = icmp eq i32 %rank, %item_rank
  %is_kind = and i1 %is_dtype, %is_rank
  br i1 %is_kind, label %shape, label %no
shape:
  %shape_offset = load i64, ptr @offset.array_shape, align 8
  %extents = call ptr @array.word(ptr %leaf, i64 %shape_offset)
  %item_extents = call ptr @array.word(ptr %item, i64 %shape_offset)
  %rank64 = zext i32 %rank to i64
  %is_shape = call i1 @words.are_equal(ptr %extents, ptr %item_extents, i64 %rank64)
  br i1 %is_shape, label %copy, label %no
copy:
  %status = call i32 @PyArray_CopyInto(ptr %leaf, ptr %item)
  %is_good = icmp eq i32 %status, 0
  %next = call ptr @next_if(i1 %is_good, ptr %at, i64 2)
  ret ptr %next
no:
  ret ptr null
}

; item: a result as it is.
define private ptr @give.item(ptr %frame, ptr %at) alwaysinline {
  %item = call ptr @frame.item(ptr %frame, ptr %at)
  call void @Py_IncRef(ptr %item)
  %after = getelementptr inbounds i64, ptr %at, i64 1
  %next = call ptr @frame.push(ptr %frame, ptr %item, ptr %after)
  ret ptr %next
}

; item, dtype: one of NumPy's numbers.
define private ptr @give.scalar(ptr %frame, ptr %at) {
entry:
  %item = call ptr @frame.item(ptr %frame, ptr %at)
  %dtype = call ptr @pointer(ptr %at, i64 1)
  %is_number = call i1 @array.is_number(ptr %item, ptr %dtype)
  br i1 %is_number, label %make, label %no
make:
  %data = call ptr @array.data(ptr %item)
  %scalar = call ptr @PyArray_Scalar(ptr %data, ptr %dtype, ptr %item)
  %after = getelementptr inbounds i64, ptr %at, i64 2
  %next = call ptr @frame.push(ptr %frame, ptr %scalar, ptr %after)
  ret ptr %next
no:
  ret ptr null
}

; item, dtype, kind: one of Python's numbers (0 bool, 1 int, 2 float).
define private ptr @give.number(ptr %frame, ptr %at) {
entry:
  %item = call ptr @frame.item(ptr %frame, ptr %at)
  %dtype = call ptr @pointer(ptr %at, i64 1)
  %is_number = call i1 @array.is_number(ptr %item, ptr %dtype)
  br i1 %is_number, label %make, label %no
make:
  %data = call ptr @array.data(ptr %item)
  %kind = call i64 @word(ptr %at, i64 2)
  switch i64 %kind, label %no [
    i64 0, label %bool
    i64 1, label %int
    i64 2, label %float
  ]
bool:
  %truth = load i8, ptr %data, align 1
  %truth64 = zext i8 %truth to i64
  %made_bool = call ptr @PyBool_FromLong(i64 %truth64)
  br label %put
int:
  %whole = load i64, ptr %data, align 8
  %made_int = call ptr @PyLong_FromLongLong(i64 %whole)
  br label %put
float:
  %double = load double, ptr %data, align 8
  %made_float = call ptr @PyFloat_FromDouble(double %double)
  br label %put
put:
  %made = phi ptr [ %made_bool, %bool ], [ %made_int, %int ], [ %made_float, %float ]
  %after = getelementptr inbounds i64, ptr %at, i64 3
  %next = call ptr @frame.push(ptr %frame, ptr %made, ptr %after)
  ret ptr %next
no:
  ret ptr null
}

; item, rank, dimensions...: an array with its dimensions in this order.
define private ptr @give.transposed(ptr %frame, ptr %at) {
entry:
  %dimensions = alloca { ptr, i32 }, align 8   ; PyArray_Dims
  %item = call ptr @frame.item(ptr %frame, ptr %at)
  %type = call ptr @object.type(ptr %item)
  %is_array = icmp eq ptr %type, @PyArray_Type
  br i1 %is_array, label %make, label %no
make:
  %rank = call i64 @word(ptr %at, i64 1)
  %rank32 = trunc i64 %rank to i32
  %order = getelementptr inbounds i64, ptr %at, i64 2
  store ptr %order, ptr %dimensions, align 8
  %rank_at = getelementptr inbounds i8, ptr %dimensions, i64 8
  store i32 %rank32, ptr %rank_at, align 8
  %view = call ptr @PyArray_Transpose(ptr %item, ptr %dimensions)
  %after = getelementptr inbounds i64, ptr %order, i64 %rank
  %next = call ptr @frame.push(ptr %frame, ptr %view, ptr %after)
  ret ptr %next
no:
  ret ptr null
}

; object: what was known when the function was traced.
define private ptr @give.constant(ptr %frame, ptr %at) alwaysinline {
  %object = load ptr, ptr %at, align 8
  call void @Py_IncRef(ptr %object)
  %after = getelementptr inbounds i64, ptr %at, i64 1
  %next = call ptr @frame.push(ptr %frame, ptr %object, ptr %after)
  ret ptr %next
}

; count: a tuple of the last values.
define private ptr @give.tuple(ptr %frame, ptr %at) {
entry:
  %count = load i64, ptr %at, align 8
  %tuple = call ptr @PyTuple_New(i64 %count)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %no, label %take
take:
  %values = call ptr @frame.pop(ptr %frame, i64 %count)
  br label %head
head:
  %number = phi i64 [ 0, %take ], [ %number1, %put ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %put, label %done
put:
  %value = call ptr @pointer(ptr %values, i64 %number)
  %status = call i32 @PyTuple_SetItem(ptr %tuple, i64 %number, ptr %value)
  %number1 = add i64 %number, 1
  br label %head
done:
  %after = getelementptr inbounds i64, ptr %at, i64 1
  %next = call ptr @frame.push(ptr %frame, ptr %tuple, ptr %after)
  ret ptr %next
no:
  ret ptr null
}

; count: a list of the last values.
define private ptr @give.list(ptr %frame, ptr %at) {
entry:
  %count = load i64, ptr %at, align 8
  %list = call ptr @PyList_New(i64 %count)
  %no_list = icmp eq ptr %list, null
  br i1 %no_list, label %no, label %take
take:
  %values = call ptr @frame.pop(ptr %frame, i64 %count)
  br label %head
head:
  %number = phi i64 [ 0, %take ], [ %number1, %put ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %put, label %done
put:
  %value = call ptr @pointer(ptr %values, i64 %number)
  %status = call i32 @PyList_SetItem(ptr %list, i64 %number, ptr %value)
  %number1 = add i64 %number, 1
  br label %head
done:
  %after = getelementptr inbounds i64, ptr %at, i64 1
  %next = call ptr @frame.push(ptr %frame, ptr %list, ptr %after)
  ret ptr %next
no:
  ret ptr null
}

; Put the last values into an object that is new, by `set`(object, name, value), then that on the stack; null for an object that
; could not be made.
define private ptr @frame.filled(ptr %frame, ptr %object, i64 %count, ptr %names, ptr %set) alwaysinline {
entry:
  %no_object = icmp eq ptr %object, null
  br i1 %no_object, label %no, label %take
take:
  %values = call ptr @frame.pop(ptr %frame, i64 %count)
  br label %head
head:
  ; All of them are released, also behind a failure.
  %number = phi i64 [ 0, %take ], [ %number1, %next ]
  %status = phi i32 [ 0, %take ], [ %status2, %next ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %put, label %done
put:
  %name = call ptr @pointer(ptr %names, i64 %number)
  %value = call ptr @pointer(ptr %values, i64 %number)
  %is_good_yet = icmp eq i32 %status, 0
  br i1 %is_good_yet, label %store, label %next
store:
  %status1 = call i32 %set(ptr %object, ptr %name, ptr %value)
  br label %next
next:
  %status2 = phi i32 [ %status, %put ], [ %status1, %store ]
  call void @Py_DecRef(ptr %value)
  %number1 = add i64 %number, 1
  br label %head
done:
  %is_good = icmp eq i32 %status, 0
  br i1 %is_good, label %yes, label %drop
yes:
  %after = getelementptr inbounds i64, ptr %names, i64 %count
  %pushed = call ptr @frame.push(ptr %frame, ptr %object, ptr %after)
  ret ptr %pushed
drop:
  call void @Py_DecRef(ptr %object)
  br label %no
no:
  ret ptr null
}

; count, keys...: a dictionary of the last values.
define private ptr @give.dict(ptr %frame, ptr %at) {
  %count = load i64, ptr %at, align 8
  %keys = getelementptr inbounds i64, ptr %at, i64 1
  %dict = call ptr @PyDict_New()
  %next = call ptr @frame.filled(ptr %frame, ptr %dict, i64 %count, ptr %keys, ptr @PyDict_SetItem)
  ret ptr %next
}

; callable, argument or null, count, keys...: what the callable makes, with the last values as its items.
define private ptr @give.mapping(ptr %frame, ptr %at) {
  %make = load ptr, ptr %at, align 8
  %argument = call ptr @pointer(ptr %at, i64 1)
  %count = call i64 @word(ptr %at, i64 2)
  %keys = getelementptr inbounds i64, ptr %at, i64 3
  %mapping = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %make, ptr %argument, ptr null)
  %next = call ptr @frame.filled(ptr %frame, ptr %mapping, i64 %count, ptr %keys, ptr @PyObject_SetItem)
  ret ptr %next
}

; callable, type, count, names...: what the callable makes of a type, with the last values as its attributes.
define private ptr @give.instance(ptr %frame, ptr %at) {
  %make = load ptr, ptr %at, align 8
  %type = call ptr @pointer(ptr %at, i64 1)
  %count = call i64 @word(ptr %at, i64 2)
  %names = getelementptr inbounds i64, ptr %at, i64 3
  %instance = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %make, ptr %type, ptr null)
  %next = call ptr @frame.filled(ptr %frame, ptr %instance, i64 %count, ptr %names, ptr @PyObject_GenericSetAttr)
  ret ptr %next
}

; callable, object: what the callable makes of the object and the last value.
define private ptr @give.made(ptr %frame, ptr %at) {
  %make = load ptr, ptr %at, align 8
  %first = call ptr @pointer(ptr %at, i64 1)
  %place = call ptr @frame.pop(ptr %frame, i64 1)
  %value = load ptr, ptr %place, align 8
  %made = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %make, ptr %first, ptr %value, ptr null)
  call void @Py_DecRef(ptr %value)
  %after = getelementptr inbounds i64, ptr %at, i64 2
  %next = call ptr @frame.push(ptr %frame, ptr %made, ptr %after)
  ret ptr %next
}

; What only Python makes.
define private ptr @give.python(ptr %frame, ptr %at) alwaysinline {
  ret ptr null
}

; Whether the arguments of a call are those that an entry was made for: the operations of an entry's first part.
;
; `matching.py` in hlojit.tracing writes them; `interpret.match`, generated from the table of their names (layout.py), calls
; @match.NAME(frame, operands), which returns where the next operation begins, or null where the call is another one.
;
; The values of a call are its arguments, which the caller owns, and behind them what was taken out of these or made of them,
; which the frame owns: somebody may take an element out of a list while the program runs.

@PyFloat_Type = external global i8
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyDict_Size(ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_GetItem(ptr, ptr)
declare ptr @PySequence_Tuple(ptr)
declare ptr @PyObject_GenericGetDict(ptr, ptr)
declare ptr @PyCell_Get(ptr)
declare ptr @PyFunction_GetCode(ptr)
declare ptr @PyFunction_GetDefaults(ptr)
declare ptr @PyFunction_GetKwDefaults(ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare double @PyFloat_AsDouble(ptr)
declare double @PyComplex_RealAsDouble(ptr)
declare double @PyComplex_ImagAsDouble(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyArray_FromScalar(ptr, ptr)
declare i32 @memcmp(ptr, ptr, i64)

define private i64 @word(ptr %at, i64 %number) alwaysinline {
  %place = getelementptr inbounds i64, ptr %at, i64 %number
  %word = load i64, ptr %place, align 8
  ret i64 %word
}

define private ptr @pointer(ptr %at, i64 %number) alwaysinline {
  %place = getelementptr inbounds ptr, ptr %at, i64 %number
  %pointer = load ptr, ptr %place, align 8
  ret ptr %pointer
}

define private ptr @object.type(ptr %object) alwaysinline {
  %offset = load i64, ptr @offset.type, align 8
  %type = call ptr @array.word(ptr %object, i64 %offset)
  ret ptr %type
}

define private i64 @tuple.size(ptr %tuple) alwaysinline {
  %offset = load i64, ptr @offset.tuple_size, align 8
  %at = getelementptr inbounds i8, ptr %tuple, i64 %offset
  %size = load i64, ptr %at, align 8
  ret i64 %size
}

define private ptr @tuple.item(ptr %tuple, i64 %number) alwaysinline {
  %offset = load i64, ptr @offset.tuple_item, align 8
  %items = getelementptr inbounds i8, ptr %tuple, i64 %offset
  %item = call ptr @pointer(ptr %items, i64 %number)
  ret ptr %item
}

define private i32 @array.flag_word(ptr %array) alwaysinline {
  %at = call ptr @array.flags(ptr %array)
  %flags = load i32, ptr %at, align 4
  ret i32 %flags
}

define private ptr @array.data(ptr %array) alwaysinline {
  %offset = load i64, ptr @offset.array_data, align 8
  %data = call ptr @array.word(ptr %array, i64 %offset)
  ret ptr %data
}

; ------------------------------------------------------------------------------------------------------------ the frame

define private ptr @frame.value(ptr %frame, i64 %number) alwaysinline {
  %values_at = call ptr @frame.values(ptr %frame)
  %values = load ptr, ptr %values_at, align 8
  %value = call ptr @pointer(ptr %values, i64 %number)
  ret ptr %value
}

; One value more, which the frame owns from now on.
define private void @frame.own(ptr %frame, ptr %object) alwaysinline {
  %values_at = call ptr @frame.values(ptr %frame)
  %values = load ptr, ptr %values_at, align 8
  %count_at = call ptr @frame.count(ptr %frame)
  %count = load i64, ptr %count_at, align 8
  %place = getelementptr inbounds ptr, ptr %values, i64 %count
  store ptr %object, ptr %place, align 8
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %count_at, align 8
  ret void
}

define private void @frame.share(ptr %frame, ptr %object) alwaysinline {
  call void @Py_IncRef(ptr %object)
  call void @frame.own(ptr %frame, ptr %object)
  ret void
}

; One argument more for the program.
define private void @frame.leaf(ptr %frame, ptr %array) alwaysinline {
  %leaves_at = call ptr @frame.leaves(ptr %frame)
  %leaves = load ptr, ptr %leaves_at, align 8
  %count_at = call ptr @frame.leaf_count(ptr %frame)
  %count = load i64, ptr %count_at, align 8
  %place = getelementptr inbounds ptr, ptr %leaves, i64 %count
  store ptr %array, ptr %place, align 8
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %count_at, align 8
  ret void
}

; The value that an operation's first operand names.
define private ptr @frame.operand(ptr %frame, ptr %at) alwaysinline {
  %number = load i64, ptr %at, align 8
  %value = call ptr @frame.value(ptr %frame, i64 %number)
  ret ptr %value
}

; Where the next operation begins if a condition holds.
define private ptr @next_if(i1 %condition, ptr %at, i64 %words) alwaysinline {
  %after = getelementptr inbounds i64, ptr %at, i64 %words
  %next = select i1 %condition, ptr %after, ptr null
  ret ptr %next
}

; ------------------------------------------------------------------------------------------------------------- arguments

; number, name: a keyword of the call.
define private ptr @match.keyword(ptr %frame, ptr %at) {
entry:
  %keywords_at = call ptr @frame.keywords(ptr %frame)
  %keywords = load ptr, ptr %keywords_at, align 8
  %number = load i64, ptr %at, align 8
  %given = call ptr @tuple.item(ptr %keywords, i64 %number)
  %name = call ptr @pointer(ptr %at, i64 1)
  %is_same = icmp eq ptr %given, %name
  br i1 %is_same, label %yes, label %compare
compare:
  %equal = call i32 @PyObject_RichCompareBool(ptr %given, ptr %name, i32 2)
  %is_equal = icmp eq i32 %equal, 1
  br i1 %is_equal, label %yes, label %no
yes:
  %next = getelementptr inbounds i64, ptr %at, i64 2
  ret ptr %next
no:
  ret ptr null
}

; source, dtype, flags, rank, dimensions..., strides... (those only where the flags do not say that elements lie in a row).
define private ptr @match.array(ptr %frame, ptr %at) alwaysinline {
entry:
  %array = call ptr @frame.operand(ptr %frame, ptr %at)
  %type = call ptr @object.type(ptr %array)
  %is_array = icmp eq ptr %type, @PyArray_Type
  br i1 %is_array, label %form, label %no
form:
  %dtype_offset = load i64, ptr @offset.array_dtype, align 8
  %dtype = call ptr @array.word(ptr %array, i64 %dtype_offset)
  %wanted_dtype = call ptr @pointer(ptr %at, i64 1)
  %is_dtype = icmp eq ptr %dtype, %wanted_dtype
  %flags = call i32 @array.flag_word(ptr %array)
  %contiguous = and i32 %flags, 1
  %wanted_flags = call i64 @word(ptr %at, i64 2)
  %wanted_contiguous = trunc i64 %wanted_flags to i32
  %is_layout = icmp eq i32 %contiguous, %wanted_contiguous
  %rank_offset = load i64, ptr @offset.array_rank, align 8
  %rank_at = getelementptr inbounds i8, ptr %array, i64 %rank_offset
  %rank = load i32, ptr %rank_at, align 4
  %wanted_rank = call i64 @word(ptr %at, i64 3)
  %wanted_rank32 = trunc i64 %wanted_rank to i32
  %is_rank = icmp eq i32 %rank, %wanted_rank32
  %is_kind = and i1 %is_dtype, %is_layout
  %is_form = and i1 %is_kind, %is_rank
  br i1 %is_form, label %shape, label %no
shape:
  %wanted_shape = getelementptr inbounds i64, ptr %at, i64 4
  %shape_offset = load i64, ptr @offset.array_shape, align 8
  %extents = call ptr @array.word(ptr %array, i64 %shape_offset)
  %is_shape = call i1 @words.are_equal(ptr %extents, ptr %wanted_shape, i64 %wanted_rank)
  br i1 %is_shape, label %layout, label %no
layout:
  %after_shape = getelementptr inbounds i64, ptr %wanted_shape, i64 %wanted_rank
  %in_a_row = icmp ne i64 %wanted_flags, 0
  br i1 %in_a_row, label %yes, label %strides
strides:
  %strides_offset = load i64, ptr @offset.array_strides, align 8
  %steps = call ptr @array.word(ptr %array, i64 %strides_offset)
  %is_strides = call i1 @words.are_equal(ptr %steps, ptr %after_shape, i64 %wanted_rank)
  %after_strides = getelementptr inbounds i64, ptr %after_shape, i64 %wanted_rank
  br i1 %is_strides, label %yes, label %no
yes:
  %next = phi ptr [ %after_shape, %layout ], [ %after_strides, %strides ]
  call void @frame.leaf(ptr %frame, ptr %array)
  ret ptr %next
no:
  ret ptr null
}

define private i1 @words.are_equal(ptr %a, ptr %b, i64 %count) alwaysinline {
entry:
  br label %head
head:
  %number = phi i64 [ 0, %entry ], [ %number1, %compare ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %compare, label %yes
compare:
  %x = call i64 @word(ptr %a, i64 %number)
  %y = call i64 @word(ptr %b, i64 %number)
  %number1 = add i64 %number, 1
  %is_equal = icmp eq i64 %x, %y
  br i1 %is_equal, label %head, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; An array without dimensions; null (exception pending) if Python is out of memory.
define private ptr @array.of_number(ptr %dtype) {
  call void @Py_IncRef(ptr %dtype)   ; the next call steals a reference
  %array = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %dtype, i32 0, ptr null, ptr null, ptr null, i32 0, ptr null)
  ret ptr %array
}

; source, type, dtype, kind: one of Python's numbers (0 bool, 1 int, 2 float, 3 complex), for the program an array.
define private ptr @match.number(ptr %frame, ptr %at) {
entry:
  %overflow = alloca i32, align 4
  %number = call ptr @frame.operand(ptr %frame, ptr %at)
  %type = call ptr @object.type(ptr %number)
  %wanted_type = call ptr @pointer(ptr %at, i64 1)
  %is_type = icmp eq ptr %type, %wanted_type
  br i1 %is_type, label %make, label %no
make:
  %dtype = call ptr @pointer(ptr %at, i64 2)
  %array = call ptr @array.of_number(ptr %dtype)
  %no_array = icmp eq ptr %array, null
  br i1 %no_array, label %no, label %own
own:
  call void @frame.own(ptr %frame, ptr %array)
  %data = call ptr @array.data(ptr %array)
  %kind = call i64 @word(ptr %at, i64 3)
  switch i64 %kind, label %no [
    i64 0, label %whole
    i64 1, label %whole
    i64 2, label %float
    i64 3, label %complex
  ]
whole:
  %value = call i64 @PyLong_AsLongLongAndOverflow(ptr %number, ptr %overflow)
  %too_large = load i32, ptr %overflow, align 4
  %fits = icmp eq i32 %too_large, 0
  %is_bool = icmp eq i64 %kind, 0
  br i1 %fits, label %store, label %no
store:
  br i1 %is_bool, label %store_bool, label %store_int
store_bool:
  %truth = trunc i64 %value to i8
  store i8 %truth, ptr %data, align 1
  br label %yes
store_int:
  store i64 %value, ptr %data, align 8
  br label %yes
float:
  %double = call double @PyFloat_AsDouble(ptr %number)
  store double %double, ptr %data, align 8
  br label %yes
complex:
  %real = call double @PyComplex_RealAsDouble(ptr %number)
  %imaginary = call double @PyComplex_ImagAsDouble(ptr %number)
  store double %real, ptr %data, align 8
  %imaginary_at = getelementptr inbounds double, ptr %data, i64 1
  store double %imaginary, ptr %imaginary_at, align 8
  br label %yes
yes:
  call void @frame.leaf(ptr %frame, ptr %array)
  %next = getelementptr inbounds i64, ptr %at, i64 4
  ret ptr %next
no:
  ret ptr null
}

; source, type: one of NumPy's numbers, for the program an array.
define private ptr @match.scalar(ptr %frame, ptr %at) {
entry:
  %scalar = call ptr @frame.operand(ptr %frame, ptr %at)
  %type = call ptr @object.type(ptr %scalar)
  %wanted_type = call ptr @pointer(ptr %at, i64 1)
  %is_type = icmp eq ptr %type, %wanted_type
  br i1 %is_type, label %make, label %no
make:
  %array = call ptr @PyArray_FromScalar(ptr %scalar, ptr null)
  %no_array = icmp eq ptr %array, null
  br i1 %no_array, label %no, label %yes
yes:
  call void @frame.own(ptr %frame, ptr %array)
  call void @frame.leaf(ptr %frame, ptr %array)
  %next = getelementptr inbounds i64, ptr %at, i64 2
  ret ptr %next
no:
  ret ptr null
}

; source, object: this very object.
define private ptr @match.same(ptr %frame, ptr %at) alwaysinline {
  %value = call ptr @frame.operand(ptr %frame, ptr %at)
  %object = call ptr @pointer(ptr %at, i64 1)
  %is_same = icmp eq ptr %value, %object
  %next = call ptr @next_if(i1 %is_same, ptr %at, i64 2)
  ret ptr %next
}

; source, type, object: an object of this type that is equal, of types whose equality is their own.
define private ptr @match.equal(ptr %frame, ptr %at) {
entry:
  %value = call ptr @frame.operand(ptr %frame, ptr %at)
  %object = call ptr @pointer(ptr %at, i64 2)
  %is_same = icmp eq ptr %value, %object
  br i1 %is_same, label %yes, label %type
type:
  %type_of = call ptr @object.type(ptr %value)
  %wanted_type = call ptr @pointer(ptr %at, i64 1)
  %is_type = icmp eq ptr %type_of, %wanted_type
  br i1 %is_type, label %compare, label %no
compare:
  %equal = call i32 @PyObject_RichCompareBool(ptr %value, ptr %object, i32 2)
  %is_equal = icmp eq i32 %equal, 1
  br i1 %is_equal, label %yes, label %no
yes:
  %next = getelementptr inbounds i64, ptr %at, i64 3
  ret ptr %next
no:
  ret ptr null
}

; source, bits: a float of these bits.
define private ptr @match.float(ptr %frame, ptr %at) {
entry:
  %value = call ptr @frame.operand(ptr %frame, ptr %at)
  %type = call ptr @object.type(ptr %value)
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %compare, label %no
compare:
  %double = call double @PyFloat_AsDouble(ptr %value)
  %bits = bitcast double %double to i64
  %wanted = call i64 @word(ptr %at, i64 1)
  %is_equal = icmp eq i64 %bits, %wanted
  %next = call ptr @next_if(i1 %is_equal, ptr %at, i64 2)
  ret ptr %next
no:
  ret ptr null
}

; source, type: an object of this type.
define private ptr @match.type(ptr %frame, ptr %at) alwaysinline {
  %value = call ptr @frame.operand(ptr %frame, ptr %at)
  %type = call ptr @object.type(ptr %value)
  %wanted = call ptr @pointer(ptr %at, i64 1)
  %is_type = icmp eq ptr %type, %wanted
  %next = call ptr @next_if(i1 %is_type, ptr %at, i64 2)
  ret ptr %next
}

; ------------------------------------------------------------------------------------------------------------ containers

; source, count: the elements of a tuple, whose type has been looked at.
define private ptr @match.tuple(ptr %frame, ptr %at) alwaysinline {
entry:
  %tuple = call ptr @frame.operand(ptr %frame, ptr %at)
  %count = call i64 @word(ptr %at, i64 1)
  %size = call i64 @tuple.size(ptr %tuple)
  %is_size = icmp eq i64 %size, %count
  br i1 %is_size, label %head, label %no
head:
  %number = phi i64 [ 0, %entry ], [ %number1, %take ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %take, label %yes
take:
  %item = call ptr @tuple.item(ptr %tuple, i64 %number)
  call void @frame.share(ptr %frame, ptr %item)
  %number1 = add i64 %number, 1
  br label %head
yes:
  %next = getelementptr inbounds i64, ptr %at, i64 2
  ret ptr %next
no:
  ret ptr null
}

; source, count: the elements of a list, whose type has been looked at.
define private ptr @match.list(ptr %frame, ptr %at) {
entry:
  %list = call ptr @frame.operand(ptr %frame, ptr %at)
  %count = call i64 @word(ptr %at, i64 1)
  %size = call i64 @PyList_Size(ptr %list)
  %is_size = icmp eq i64 %size, %count
  br i1 %is_size, label %head, label %no
head:
  %number = phi i64 [ 0, %entry ], [ %number1, %keep ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %take, label %yes
take:
  %item = call ptr @PyList_GetItem(ptr %list, i64 %number)
  %no_item = icmp eq ptr %item, null
  br i1 %no_item, label %no, label %keep
keep:
  call void @frame.share(ptr %frame, ptr %item)
  %number1 = add i64 %number, 1
  br label %head
yes:
  %next = getelementptr inbounds i64, ptr %at, i64 2
  ret ptr %next
no:
  ret ptr null
}

; source, count, keys...: the values of a dictionary of these keys in this order, whose type has been looked at.
define private ptr @match.dict(ptr %frame, ptr %at) {
entry:
  %position = alloca i64, align 8
  %key_at = alloca ptr, align 8
  %value_at = alloca ptr, align 8
  store i64 0, ptr %position, align 8
  %dict = call ptr @frame.operand(ptr %frame, ptr %at)
  %count = call i64 @word(ptr %at, i64 1)
  %keys = getelementptr inbounds i64, ptr %at, i64 2
  %size = call i64 @PyDict_Size(ptr %dict)
  %is_size = icmp eq i64 %size, %count
  br i1 %is_size, label %head, label %no
head:
  %number = phi i64 [ 0, %entry ], [ %number1, %keep ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %take, label %yes
take:
  %found = call i32 @PyDict_Next(ptr %dict, ptr %position, ptr %key_at, ptr %value_at)
  %is_found = icmp ne i32 %found, 0
  br i1 %is_found, label %key, label %no
key:
  %given = load ptr, ptr %key_at, align 8
  %wanted = call ptr @pointer(ptr %keys, i64 %number)
  %is_same = icmp eq ptr %given, %wanted
  br i1 %is_same, label %keep, label %type
type:
  ; Texts of the same letters; the comparison of other objects might change the dictionary.
  %given_type = call ptr @object.type(ptr %given)
  %wanted_type = call ptr @object.type(ptr %wanted)
  %is_type = icmp eq ptr %given_type, %wanted_type
  br i1 %is_type, label %compare, label %no
compare:
  %equal = call i32 @PyObject_RichCompareBool(ptr %given, ptr %wanted, i32 2)
  %is_equal = icmp eq i32 %equal, 1
  br i1 %is_equal, label %keep, label %no
keep:
  %value = load ptr, ptr %value_at, align 8
  call void @frame.share(ptr %frame, ptr %value)
  %number1 = add i64 %number, 1
  br label %head
yes:
  %next = getelementptr inbounds i64, ptr %keys, i64 %count
  ret ptr %next
no:
  ret ptr null
}

; source, name: an attribute of an object, whose type has been looked at.
define private ptr @match.attribute(ptr %frame, ptr %at) {
entry:
  %object = call ptr @frame.operand(ptr %frame, ptr %at)
  %name = call ptr @pointer(ptr %at, i64 1)
  %value = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %is_missing = icmp eq ptr %value, null
  br i1 %is_missing, label %no, label %yes
yes:
  call void @frame.own(ptr %frame, ptr %value)
  %next = getelementptr inbounds i64, ptr %at, i64 2
  ret ptr %next
no:
  ret ptr null
}

; source, callable, count: the children of an object, whose type has been looked at, and what beside them is static: the callable
; gives both as a pair.
define private ptr @match.opened(ptr %frame, ptr %at) {
entry:
  %object = call ptr @frame.operand(ptr %frame, ptr %at)
  %open = call ptr @pointer(ptr %at, i64 1)
  %count = call i64 @word(ptr %at, i64 2)
  %pair = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %open, ptr %object, ptr null)
  %no_pair = icmp eq ptr %pair, null
  br i1 %no_pair, label %no, label %own
own:
  call void @frame.own(ptr %frame, ptr %pair)
  %type = call ptr @object.type(ptr %pair)
  %is_tuple = icmp eq ptr %type, @PyTuple_Type
  br i1 %is_tuple, label %both, label %no
both:
  %parts = call i64 @tuple.size(ptr %pair)
  %is_pair = icmp eq i64 %parts, 2
  br i1 %is_pair, label %take, label %no
take:
  %given = call ptr @tuple.item(ptr %pair, i64 0)
  %children = call ptr @PySequence_Tuple(ptr %given)
  %no_children = icmp eq ptr %children, null
  br i1 %no_children, label %no, label %keep
keep:
  call void @frame.own(ptr %frame, ptr %children)
  %size = call i64 @tuple.size(ptr %children)
  %is_size = icmp eq i64 %size, %count
  br i1 %is_size, label %head, label %no
head:
  %number = phi i64 [ 0, %keep ], [ %number1, %share ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %share, label %yes
share:
  %child = call ptr @tuple.item(ptr %children, i64 %number)
  call void @frame.share(ptr %frame, ptr %child)
  %number1 = add i64 %number, 1
  br label %head
yes:
  %static = call ptr @tuple.item(ptr %pair, i64 1)
  call void @frame.share(ptr %frame, ptr %static)
  %next = getelementptr inbounds i64, ptr %at, i64 3
  ret ptr %next
no:
  ret ptr null
}

; object: a default value.
define private ptr @match.constant(ptr %frame, ptr %at) alwaysinline {
  %object = load ptr, ptr %at, align 8
  call void @frame.share(ptr %frame, ptr %object)
  %next = getelementptr inbounds i64, ptr %at, i64 1
  ret ptr %next
}

; ---------------------------------------------------------------------------------------------------------------- guards

; source, count, (name, value)...: an object whose attributes are these, and no others.
define private ptr @match.state(ptr %frame, ptr %at) {
entry:
  %position = alloca i64, align 8
  %key_at = alloca ptr, align 8
  %value_at = alloca ptr, align 8
  store i64 0, ptr %position, align 8
  %object = call ptr @frame.operand(ptr %frame, ptr %at)
  %count = call i64 @word(ptr %at, i64 1)
  %words = shl i64 %count, 1
  %pairs = getelementptr inbounds i64, ptr %at, i64 2
  %dict = call ptr @PyObject_GenericGetDict(ptr %object, ptr null)
  %no_dict = icmp eq ptr %dict, null
  br i1 %no_dict, label %no, label %own
own:
  call void @frame.own(ptr %frame, ptr %dict)
  %size = call i64 @PyDict_Size(ptr %dict)
  %is_size = icmp eq i64 %size, %count
  br i1 %is_size, label %head, label %no
head:
  %number = phi i64 [ 0, %own ], [ %number2, %pair ]
  %more = icmp ult i64 %number, %words
  br i1 %more, label %take, label %yes
take:
  %found = call i32 @PyDict_Next(ptr %dict, ptr %position, ptr %key_at, ptr %value_at)
  %is_found = icmp ne i32 %found, 0
  br i1 %is_found, label %pair, label %no
pair:
  %name = load ptr, ptr %key_at, align 8
  %wanted_name = call ptr @pointer(ptr %pairs, i64 %number)
  %number1 = add i64 %number, 1
  %value = load ptr, ptr %value_at, align 8
  %wanted_value = call ptr @pointer(ptr %pairs, i64 %number1)
  %number2 = add i64 %number, 2
  %is_name = icmp eq ptr %name, %wanted_name
  %is_value = icmp eq ptr %value, %wanted_value
  %is_pair = and i1 %is_name, %is_value
  br i1 %is_pair, label %head, label %no
yes:
  %next = getelementptr inbounds i64, ptr %pairs, i64 %words
  ret ptr %next
no:
  ret ptr null
}

; array, dtype, text, bytes, order, rank, dimensions...: an array outside of the function, in a row by C's order (1) or Fortran's
; (2), that holds these bytes.
define private ptr @match.numbers(ptr %frame, ptr %at) {
entry:
  %array = load ptr, ptr %at, align 8
  %dtype_offset = load i64, ptr @offset.array_dtype, align 8
  %dtype = call ptr @array.word(ptr %array, i64 %dtype_offset)
  %wanted_dtype = call ptr @pointer(ptr %at, i64 1)
  %is_dtype = icmp eq ptr %dtype, %wanted_dtype
  %flags = call i32 @array.flag_word(ptr %array)
  %order = call i64 @word(ptr %at, i64 4)
  %order32 = trunc i64 %order to i32
  %contiguous = and i32 %flags, %order32
  %is_layout = icmp ne i32 %contiguous, 0
  %rank_offset = load i64, ptr @offset.array_rank, align 8
  %rank_at = getelementptr inbounds i8, ptr %array, i64 %rank_offset
  %rank = load i32, ptr %rank_at, align 4
  %wanted_rank = call i64 @word(ptr %at, i64 5)
  %wanted_rank32 = trunc i64 %wanted_rank to i32
  %is_rank = icmp eq i32 %rank, %wanted_rank32
  %is_kind = and i1 %is_dtype, %is_layout
  %is_form = and i1 %is_kind, %is_rank
  br i1 %is_form, label %shape, label %no
shape:
  %wanted_shape = getelementptr inbounds i64, ptr %at, i64 6
  %shape_offset = load i64, ptr @offset.array_shape, align 8
  %extents = call ptr @array.word(ptr %array, i64 %shape_offset)
  %is_shape = call i1 @words.are_equal(ptr %extents, ptr %wanted_shape, i64 %wanted_rank)
  br i1 %is_shape, label %compare, label %no
compare:
  %data = call ptr @array.data(ptr %array)
  %text = call ptr @pointer(ptr %at, i64 2)
  %text_offset = load i64, ptr @offset.bytes_data, align 8
  %wanted = getelementptr inbounds i8, ptr %text, i64 %text_offset
  %bytes = call i64 @word(ptr %at, i64 3)
  %difference = call i32 @memcmp(ptr %data, ptr %wanted, i64 %bytes)
  %is_equal = icmp eq i32 %difference, 0
  %after = getelementptr inbounds i64, ptr %wanted_shape, i64 %wanted_rank
  %next = select i1 %is_equal, ptr %after, ptr null
  ret ptr %next
no:
  ret ptr null
}

; function, code, defaults, keyword defaults: the parts of a function of Python's; null where it has no defaults.
define private ptr @match.function(ptr %frame, ptr %at) {
  %function = load ptr, ptr %at, align 8
  %code = call ptr @PyFunction_GetCode(ptr %function)
  %wanted_code = call ptr @pointer(ptr %at, i64 1)
  %is_code = icmp eq ptr %code, %wanted_code
  %defaults = call ptr @PyFunction_GetDefaults(ptr %function)
  %wanted_defaults = call ptr @pointer(ptr %at, i64 2)
  %is_defaults = icmp eq ptr %defaults, %wanted_defaults
  %named = call ptr @PyFunction_GetKwDefaults(ptr %function)
  %wanted_named = call ptr @pointer(ptr %at, i64 3)
  %is_named = icmp eq ptr %named, %wanted_named
  %is_both = and i1 %is_defaults, %is_named
  %is_same = and i1 %is_code, %is_both
  %next = call ptr @next_if(i1 %is_same, ptr %at, i64 4)
  ret ptr %next
}

; dictionary, name, value: what a name means; null where it means nothing.
define private ptr @match.name(ptr %frame, ptr %at) alwaysinline {
  %dict = load ptr, ptr %at, align 8
  %name = call ptr @pointer(ptr %at, i64 1)
  %value = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %name)
  %wanted = call ptr @pointer(ptr %at, i64 2)
  %is_same = icmp eq ptr %value, %wanted
  %next = call ptr @next_if(i1 %is_same, ptr %at, i64 3)
  ret ptr %next
}

; mapping, name, value: the same of a class, whose dictionary Python hides.
define private ptr @match.member(ptr %frame, ptr %at) {
entry:
  %mapping = load ptr, ptr %at, align 8
  %name = call ptr @pointer(ptr %at, i64 1)
  %value = call ptr @PyObject_GetItem(ptr %mapping, ptr %name)
  %wanted = call ptr @pointer(ptr %at, i64 2)
  %is_missing = icmp eq ptr %value, null
  br i1 %is_missing, label %no, label %drop
drop:
  call void @Py_DecRef(ptr %value)
  %is_same = icmp eq ptr %value, %wanted
  %next = call ptr @next_if(i1 %is_same, ptr %at, i64 3)
  ret ptr %next
no:
  ret ptr null
}

; cell, value: what a variable of an enclosing function holds; null where it is not bound.
define private ptr @match.cell(ptr %frame, ptr %at) {
entry:
  %cell = load ptr, ptr %at, align 8
  %value = call ptr @PyCell_Get(ptr %cell)
  %is_empty = icmp eq ptr %value, null
  br i1 %is_empty, label %compare, label %drop
drop:
  call void @Py_DecRef(ptr %value)
  br label %compare
compare:
  %wanted = call ptr @pointer(ptr %at, i64 1)
  %is_same = icmp eq ptr %value, %wanted
  %next = call ptr @next_if(i1 %is_same, ptr %at, i64 2)
  ret ptr %next
}

; variable, value: a context variable, which has a value.
define private ptr @match.context(ptr %frame, ptr %at) {
entry:
  %value_at = alloca ptr, align 8
  %variable = load ptr, ptr %at, align 8
  %status = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %value_at)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %no, label %found
found:
  %value = load ptr, ptr %value_at, align 8
  %is_missing = icmp eq ptr %value, null
  br i1 %is_missing, label %no, label %drop
drop:
  call void @Py_DecRef(ptr %value)
  %wanted = call ptr @pointer(ptr %at, i64 1)
  %is_same = icmp eq ptr %value, %wanted
  %next = call ptr @next_if(i1 %is_same, ptr %at, i64 2)
  ret ptr %next
no:
  ret ptr null
}

; ------------------------------------------------------------------------------------------------- arguments that are written

define private ptr @frame.leaf_at(ptr %frame, i64 %number) alwaysinline {
  %leaves_at = call ptr @frame.leaves(ptr %frame)
  %leaves = load ptr, ptr %leaves_at, align 8
  %leaf = call ptr @pointer(ptr %leaves, i64 %number)
  ret ptr %leaf
}

; leaf: an array that may be written.
define private ptr @match.writable(ptr %frame, ptr %at) alwaysinline {
  %number = load i64, ptr %at, align 8
  %array = call ptr @frame.leaf_at(ptr %frame, i64 %number)
  %flags = call i32 @array.flag_word(ptr %array)
  %write = and i32 %flags, 1024
  %is_writable = icmp ne i32 %write, 0
  %next = call ptr @next_if(i1 %is_writable, ptr %at, i64 1)
  ret ptr %next
}

; leaf, bytes, leaf, bytes: two arrays, each in a row, that share no byte.
define private ptr @match.apart(ptr %frame, ptr %at) alwaysinline {
  %one = load i64, ptr %at, align 8
  %one_array = call ptr @frame.leaf_at(ptr %frame, i64 %one)
  %one_data = call ptr @array.data(ptr %one_array)
  %one_begin = ptrtoint ptr %one_data to i64
  %one_bytes = call i64 @word(ptr %at, i64 1)
  %one_end = add i64 %one_begin, %one_bytes
  %two = call i64 @word(ptr %at, i64 2)
  %two_array = call ptr @frame.leaf_at(ptr %frame, i64 %two)
  %two_data = call ptr @array.data(ptr %two_array)
  %two_begin = ptrtoint ptr %two_data to i64
  %two_bytes = call i64 @word(ptr %at, i64 3)
  %two_end = add i64 %two_begin, %two_bytes
  %is_before = icmp ule i64 %one_end, %two_begin
  %is_behind = icmp ule i64 %two_end, %one_begin
  %is_apart = or i1 %is_before, %is_behind
  %next = call ptr @next_if(i1 %is_apart, ptr %at, i64 4)
  ret ptr %next
}

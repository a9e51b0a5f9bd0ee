; Donated arguments: arrays whose memory a program takes for its results and temporaries.
;
; An array can be taken if nothing else can see its memory unasked: it is writable, aligned, owns its memory - NumPy's own, or a
; block of ours that it is the base of - and overlaps no other argument.  Taking it clears its `writeable` flag in one atomic
; step: it says to everybody, other threads included, that the array has been given away.  What cannot be taken goes the
; unusual way, where Python copies it.
;
; NumPy frees the memory of an array that owns it whenever it is told to (resize, __setstate__), whoever else reads it.  So
; ownership goes to an array that Python cannot reach: the *keeper*, held by a capsule.  The donated array and the results in
; its memory have the capsule as their base; none of them owns the memory, and the last one frees it.

declare i32 @PyCapsule_IsValid(ptr, ptr)
declare void @PyErr_Clear()

@name.donor = private constant [13 x i8] c"hlojit.donor\00"

; Destructor of the capsule that holds the keeper: NumPy frees the memory, as it was allocated.
define private void @donor.destroy(ptr %capsule) {
  %keeper = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @name.donor)
  call void @Py_DecRef(ptr %keeper)
  ret void
}

define private ptr @array.word(ptr %array, i64 %offset) alwaysinline {
  %at = getelementptr inbounds i8, ptr %array, i64 %offset
  %word = load ptr, ptr %at, align 8
  ret ptr %word
}

define private ptr @array.flags(ptr %array) alwaysinline {
  %offset = load i64, ptr @offset.array_flags, align 8
  %at = getelementptr inbounds i8, ptr %array, i64 %offset
  ret ptr %at
}

; Whether the array is the only one through which its memory can be reached, as far as that can be known.
define private i1 @donation.is_owner(ptr %array, i32 %flags) {
entry:
  %base_offset = load i64, ptr @offset.array_base, align 8
  %base = call ptr @array.word(ptr %array, i64 %base_offset)
  %is_alone = icmp eq ptr %base, null
  br i1 %is_alone, label %alone, label %based
alone:
  %own_bit = and i32 %flags, 4
  %owns = icmp ne i32 %own_bit, 0
  ret i1 %owns
based:
  %is_block = call i32 @PyCapsule_IsValid(ptr %base, ptr @name.block)
  %is_donor = call i32 @PyCapsule_IsValid(ptr %base, ptr @name.donor)
  %either = or i32 %is_block, %is_donor
  %is_ours = icmp ne i32 %either, 0
  ret i1 %is_ours
}

; Move the memory that an array owns to a keeper; false, and nothing has changed, if there is no memory for one.
define private i1 @donation.keep(ptr %array) noinline {
entry:
  %base_offset = load i64, ptr @offset.array_base, align 8
  %base = call ptr @array.word(ptr %array, i64 %base_offset)
  %is_kept = icmp ne ptr %base, null
  br i1 %is_kept, label %kept, label %make
make:
  %dtype_offset = load i64, ptr @offset.array_dtype, align 8
  %dtype = call ptr @array.word(ptr %array, i64 %dtype_offset)
  %rank_offset = load i64, ptr @offset.array_rank, align 8
  %rank_at = getelementptr inbounds i8, ptr %array, i64 %rank_offset
  %rank = load i32, ptr %rank_at, align 8
  %shape_offset = load i64, ptr @offset.array_shape, align 8
  %shape = call ptr @array.word(ptr %array, i64 %shape_offset)
  %data_offset = load i64, ptr @offset.array_data, align 8
  %data = call ptr @array.word(ptr %array, i64 %data_offset)
  call void @Py_IncRef(ptr %dtype)   ; the next call steals a reference
  %keeper = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %dtype, i32 %rank, ptr %shape, ptr null, ptr %data, i32 1281, ptr null)
  %no_keeper = icmp eq ptr %keeper, null
  br i1 %no_keeper, label %fail, label %wrap
wrap:
  %capsule = call ptr @PyCapsule_New(ptr %keeper, ptr @name.donor, ptr @donor.destroy)
  %no_capsule = icmp eq ptr %capsule, null
  br i1 %no_capsule, label %drop, label %move
move:
  ; NumPy frees with the handler by which it allocated.
  %handler_offset = load i64, ptr @offset.array_handler, align 8
  %from = getelementptr inbounds i8, ptr %array, i64 %handler_offset
  %to = getelementptr inbounds i8, ptr %keeper, i64 %handler_offset
  %handler = load ptr, ptr %from, align 8
  store ptr %handler, ptr %to, align 8
  store ptr null, ptr %from, align 8
  %keeper_flags = call ptr @array.flags(ptr %keeper)
  %owns = atomicrmw or ptr %keeper_flags, i32 4 acq_rel, align 4
  %flags = call ptr @array.flags(ptr %array)
  %owned = atomicrmw and ptr %flags, i32 -5 acq_rel, align 4
  %status = call i32 @PyArray_SetBaseObject(ptr %array, ptr %capsule)
  br label %kept
kept:
  ret i1 true
drop:
  call void @Py_DecRef(ptr %keeper)
  br label %fail
fail:
  call void @PyErr_Clear()
  ret i1 false
}

; Whether input `number` shares bytes with another one.
define private i1 @donation.overlaps(ptr %record, ptr %slots, i64 %number) {
entry:
  %inputs_at = call ptr @call.inputs(ptr %record)
  %inputs = load i64, ptr %inputs_at, align 8
  %bytes_at = call ptr @call.input_bytes(ptr %record)
  %bytes = load ptr, ptr %bytes_at, align 8
  %own_slot = getelementptr inbounds i64, ptr %slots, i64 %number
  %begin = load i64, ptr %own_slot, align 8
  %own_bytes_at = getelementptr inbounds i64, ptr %bytes, i64 %number
  %own_bytes = load i64, ptr %own_bytes_at, align 8
  %end = add i64 %begin, %own_bytes
  br label %next
next:
  %other = phi i64 [ 0, %entry ], [ %other1, %following ]
  %more = icmp ult i64 %other, %inputs
  br i1 %more, label %compare, label %no
compare:
  %is_itself = icmp eq i64 %other, %number
  br i1 %is_itself, label %following, label %range
range:
  %slot = getelementptr inbounds i64, ptr %slots, i64 %other
  %other_begin = load i64, ptr %slot, align 8
  %other_bytes_at = getelementptr inbounds i64, ptr %bytes, i64 %other
  %other_bytes = load i64, ptr %other_bytes_at, align 8
  %other_end = add i64 %other_begin, %other_bytes
  %begins_before = icmp ult i64 %begin, %other_end
  %ends_behind = icmp ult i64 %other_begin, %end
  %meets = and i1 %begins_before, %ends_behind
  br i1 %meets, label %yes, label %following
following:
  %other1 = add i64 %other, 1
  br label %next
no:
  ret i1 false
yes:
  ret i1 true
}

; Take all donated arguments, or none of them.
define private i1 @donation.claim(ptr %record, ptr %arguments, ptr %slots) noinline {
entry:
  %donated_at = call ptr @call.donated(ptr %record)
  %donated = load i64, ptr %donated_at, align 8
  %table_at = call ptr @call.donation_table(ptr %record)
  %table = load ptr, ptr %table_at, align 8
  br label %next
next:
  %taken = phi i64 [ 0, %entry ], [ %taken1, %accept ]
  %more = icmp ult i64 %taken, %donated
  br i1 %more, label %take, label %all
take:
  %number_at = getelementptr inbounds i64, ptr %table, i64 %taken
  %number = load i64, ptr %number_at, align 8
  %argument_at = getelementptr inbounds ptr, ptr %arguments, i64 %number
  %argument = load ptr, ptr %argument_at, align 8
  %slot = getelementptr inbounds i64, ptr %slots, i64 %number
  %data = load i64, ptr %slot, align 8
  %misplaced = and i64 %data, 7
  %is_aligned = icmp eq i64 %misplaced, 0
  br i1 %is_aligned, label %apart, label %none
apart:
  %overlaps = call i1 @donation.overlaps(ptr %record, ptr %slots, i64 %number)
  br i1 %overlaps, label %none, label %mark
mark:
  %flags_at = call ptr @array.flags(ptr %argument)
  %flags = atomicrmw and ptr %flags_at, i32 -1025 acq_rel, align 4
  %write_bit = and i32 %flags, 1024
  %is_writable = icmp ne i32 %write_bit, 0
  br i1 %is_writable, label %owner, label %none
owner:
  %is_owner = call i1 @donation.is_owner(ptr %argument, i32 %flags)
  br i1 %is_owner, label %own, label %unmark
own:
  %is_safe = call i1 @donation.keep(ptr %argument)
  br i1 %is_safe, label %accept, label %unmark
accept:
  %taken1 = add i64 %taken, 1
  br label %next
unmark:
  %restored = atomicrmw or ptr %flags_at, i32 1024 acq_rel, align 4
  br label %none
none:
  call void @donation.return(ptr %record, ptr %arguments, i64 %taken)
  ret i1 false
all:
  ret i1 true
}

; Give back the first `taken` of the donated arguments.
define private void @donation.return(ptr %record, ptr %arguments, i64 %taken) noinline cold {
entry:
  %table_at = call ptr @call.donation_table(ptr %record)
  %table = load ptr, ptr %table_at, align 8
  br label %next
next:
  %left = phi i64 [ %taken, %entry ], [ %left1, %unmark ]
  %some_left = icmp ne i64 %left, 0
  br i1 %some_left, label %unmark, label %done
unmark:
  %left1 = sub i64 %left, 1
  %number_at = getelementptr inbounds i64, ptr %table, i64 %left1
  %number = load i64, ptr %number_at, align 8
  %argument_at = getelementptr inbounds ptr, ptr %arguments, i64 %number
  %argument = load ptr, ptr %argument_at, align 8
  %flags_at = call ptr @array.flags(ptr %argument)
  %before = atomicrmw or ptr %flags_at, i32 1024 acq_rel, align 4
  br label %next
done:
  ret void
}

; A new array over the memory of a donated one, which lives as long as the new one does; null with an exception pending.
define private ptr @donation.array(ptr %dtype, i64 %rank, ptr %shape, ptr %donor) {
entry:
  %base_offset = load i64, ptr @offset.array_base, align 8
  %owner = call ptr @array.word(ptr %donor, i64 %base_offset)
  call void @Py_IncRef(ptr %dtype)   ; the next call steals a reference
  %rank32 = trunc i64 %rank to i32
  %data_offset = load i64, ptr @offset.array_data, align 8
  %data = call ptr @array.word(ptr %donor, i64 %data_offset)
  ; 0x501: C-contiguous, aligned, writable
  %array = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %dtype, i32 %rank32, ptr %shape, ptr null, ptr %data, i32 1281, ptr null)
  %no_array = icmp eq ptr %array, null
  br i1 %no_array, label %done, label %own
own:
  call void @Py_IncRef(ptr %owner)   ; the next call steals it
  %status = call i32 @PyArray_SetBaseObject(ptr %array, ptr %owner)
  br label %done
done:
  ret ptr %array
}

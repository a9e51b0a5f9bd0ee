; Putting a fixed program on a stream, and looking at events: the C functions of a driver, called without a Python object for each
; of them.  The driver's functions have the shape of CUDA's and come as addresses in the record (native_launch.py).
;
; PyObject *hlojit_gpu_run(PyObject *record, PyObject *const *arguments, Py_ssize_t count)         (METH_FASTCALL)
;
; `record` is the address of the record as a Python number; the arguments are the number of an event, which is recorded behind the
; program (0: none), then the addresses of one call.  Returns 0, or the driver's status in the lower 32 bits and the number of
; what failed above: a step, -2 for the event when all else is on the stream, or -1 for all else.
;
; hlojit_gpu_build makes nodes of a graph, whose number is its first argument, each behind the one before.  hlojit_gpu_replay is as
; hlojit_gpu_run and launches the graph that was instantiated; nodes for which an address is another one than before are told first.
;
; The steps are 64-bit words.  A place is two of them: the number of an argument (0: none, its address is 0) and the bytes behind it.
;
;   launch   1, words, node, function, blocks, threads, shared bytes, parameters, place...
;   copy     2, words, node, bytes, 0, 0, 0, 2, target, source
;
; The driver is called without the GIL: what it waits for may be another library's callback, which takes it.

declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; CUDA_KERNEL_NODE_PARAMS: function, blocks, threads, shared bytes, pointers to parameters, extra, kernel, context.
%KernelNode = type { ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr, ptr }
; CUDA_MEMCPY3D: for source and target x, y, z, level, kind of memory, host, device, array, reserved, pitch, height; then the extents.
%CopyNode = type { [11 x i64], [11 x i64], [3 x i64] }

define private i64 @word(ptr %words, i64 %number) alwaysinline {
  %at = getelementptr inbounds i64, ptr %words, i64 %number
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

; ------------------------------------------------------------------------------------------------------------------ steps

; An address of this call, and the bytes behind it.
define private i64 @place(ptr %addresses, ptr %step, i64 %number) alwaysinline {
  %twice = shl i64 %number, 1
  %at = add i64 %twice, 8
  %slot = call i64 @word(ptr %step, i64 %at)
  %next = add i64 %at, 1
  %offset = call i64 @word(ptr %step, i64 %next)
  %base = call i64 @word(ptr %addresses, i64 %slot)
  %address = add i64 %base, %offset
  ret i64 %address
}

; Whether one of a step's addresses is another one than before.
define private i1 @is_changed(ptr %step, ptr %addresses, ptr %before) {
entry:
  %count = call i64 @word(ptr %step, i64 7)
  br label %test
test:
  %number = phi i64 [ 0, %entry ], [ %next, %same ]
  %is_done = icmp eq i64 %number, %count
  br i1 %is_done, label %no, label %look
look:
  %address = call i64 @place(ptr %addresses, ptr %step, i64 %number)
  %old = call i64 @place(ptr %before, ptr %step, i64 %number)
  %is_same = icmp eq i64 %address, %old
  br i1 %is_same, label %same, label %yes
same:
  %next = add i64 %number, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}

define private i1 @are_equal(ptr %first, ptr %second, i64 %count) {
entry:
  br label %test
test:
  %number = phi i64 [ 0, %entry ], [ %next, %look ]
  %is_done = icmp eq i64 %number, %count
  br i1 %is_done, label %yes, label %look
look:
  %one = call i64 @word(ptr %first, i64 %number)
  %other = call i64 @word(ptr %second, i64 %number)
  %next = add i64 %number, 1
  %is_same = icmp eq i64 %one, %other
  br i1 %is_same, label %test, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; The parameters of a launch and pointers to them.
define private void @fill(ptr %step, ptr %addresses, ptr %values, ptr %pointers) {
entry:
  %count = call i64 @word(ptr %step, i64 7)
  br label %test
test:
  %number = phi i64 [ 0, %entry ], [ %next, %fill ]
  %is_done = icmp eq i64 %number, %count
  br i1 %is_done, label %end, label %fill
fill:
  %address = call i64 @place(ptr %addresses, ptr %step, i64 %number)
  %value = getelementptr inbounds i64, ptr %values, i64 %number
  store i64 %address, ptr %value, align 8
  %pointer = getelementptr inbounds ptr, ptr %pointers, i64 %number
  store ptr %value, ptr %pointer, align 8
  %next = add i64 %number, 1
  br label %test
end:
  ret void
}

define private i32 @launch(ptr %record, ptr %step, ptr %addresses, ptr %values, ptr %pointers) {
  call void @fill(ptr %step, ptr %addresses, ptr %values, ptr %pointers)
  %function_word = call i64 @word(ptr %step, i64 3)
  %function = inttoptr i64 %function_word to ptr
  %blocks_word = call i64 @word(ptr %step, i64 4)
  %blocks = trunc i64 %blocks_word to i32
  %threads_word = call i64 @word(ptr %step, i64 5)
  %threads = trunc i64 %threads_word to i32
  %shared_word = call i64 @word(ptr %step, i64 6)
  %shared = trunc i64 %shared_word to i32
  %stream_at = call ptr @gpu.stream(ptr %record)
  %stream = load ptr, ptr %stream_at, align 8
  %call_at = call ptr @gpu.launch(ptr %record)
  %call = load ptr, ptr %call_at, align 8
  %status = call i32 %call(ptr %function, i32 %blocks, i32 1, i32 1, i32 %threads, i32 1, i32 1, i32 %shared, ptr %stream, ptr %pointers, ptr null)
  ret i32 %status
}

define private i32 @copy(ptr %record, ptr %step, ptr %addresses) {
  %nbytes = call i64 @word(ptr %step, i64 3)
  %target = call i64 @place(ptr %addresses, ptr %step, i64 0)
  %source = call i64 @place(ptr %addresses, ptr %step, i64 1)
  %stream_at = call ptr @gpu.stream(ptr %record)
  %stream = load ptr, ptr %stream_at, align 8
  %call_at = call ptr @gpu.copy(ptr %record)
  %call = load ptr, ptr %call_at, align 8
  %status = call i32 %call(i64 %target, i64 %source, i64 %nbytes, ptr %stream)
  ret i32 %status
}

; ---------------------------------------------------------------------------------------------------------- nodes of graphs

define private void @describe_launch(ptr %node, ptr %step, ptr %addresses, ptr %values, ptr %pointers) {
  call void @fill(ptr %step, ptr %addresses, ptr %values, ptr %pointers)
  %function_word = call i64 @word(ptr %step, i64 3)
  %function = inttoptr i64 %function_word to ptr
  %blocks_word = call i64 @word(ptr %step, i64 4)
  %blocks = trunc i64 %blocks_word to i32
  %threads_word = call i64 @word(ptr %step, i64 5)
  %threads = trunc i64 %threads_word to i32
  %shared_word = call i64 @word(ptr %step, i64 6)
  %shared = trunc i64 %shared_word to i32
  %with_function = insertvalue %KernelNode zeroinitializer, ptr %function, 0
  %with_x = insertvalue %KernelNode %with_function, i32 %blocks, 1
  %with_y = insertvalue %KernelNode %with_x, i32 1, 2
  %with_z = insertvalue %KernelNode %with_y, i32 1, 3
  %with_threads = insertvalue %KernelNode %with_z, i32 %threads, 4
  %with_threads_y = insertvalue %KernelNode %with_threads, i32 1, 5
  %with_threads_z = insertvalue %KernelNode %with_threads_y, i32 1, 6
  %with_shared = insertvalue %KernelNode %with_threads_z, i32 %shared, 7
  %described = insertvalue %KernelNode %with_shared, ptr %pointers, 8
  store %KernelNode %described, ptr %node, align 8
  ret void
}

define private void @describe_copy(ptr %node, ptr %step, ptr %addresses) {
  call void @llvm.memset.p0.i64(ptr align 8 %node, i8 0, i64 200, i1 false)
  %nbytes = call i64 @word(ptr %step, i64 3)
  %target = call i64 @place(ptr %addresses, ptr %step, i64 0)
  %source = call i64 @place(ptr %addresses, ptr %step, i64 1)
  ; 2: memory of the device
  %source_kind = getelementptr inbounds %CopyNode, ptr %node, i64 0, i32 0, i64 4
  store i32 2, ptr %source_kind, align 8
  %source_at = getelementptr inbounds %CopyNode, ptr %node, i64 0, i32 0, i64 6
  store i64 %source, ptr %source_at, align 8
  %target_kind = getelementptr inbounds %CopyNode, ptr %node, i64 0, i32 1, i64 4
  store i32 2, ptr %target_kind, align 8
  %target_at = getelementptr inbounds %CopyNode, ptr %node, i64 0, i32 1, i64 6
  store i64 %target, ptr %target_at, align 8
  %width_at = getelementptr inbounds %CopyNode, ptr %node, i64 0, i32 2, i64 0
  store i64 %nbytes, ptr %width_at, align 8
  %height_at = getelementptr inbounds %CopyNode, ptr %node, i64 0, i32 2, i64 1
  store i64 1, ptr %height_at, align 8
  %depth_at = getelementptr inbounds %CopyNode, ptr %node, i64 0, i32 2, i64 2
  store i64 1, ptr %depth_at, align 8
  ret void
}

; Make a step's node, behind the node in `last`, which it then is.
define private i32 @add_node(ptr %record, ptr %graph, ptr %last, ptr %step, ptr %addresses, ptr %values, ptr %pointers) {
entry:
  %made = alloca ptr, align 8
  %kernel = alloca %KernelNode, align 8
  %moved = alloca %CopyNode, align 8
  %before = load ptr, ptr %last, align 8
  %is_first = icmp eq ptr %before, null
  %count = select i1 %is_first, i64 0, i64 1
  %kind = call i64 @word(ptr %step, i64 0)
  %is_launch = icmp eq i64 %kind, 1
  br i1 %is_launch, label %launching, label %copying
launching:
  call void @describe_launch(ptr %kernel, ptr %step, ptr %addresses, ptr %values, ptr %pointers)
  %add_kernel_at = call ptr @gpu.add_kernel(ptr %record)
  %add_kernel = load ptr, ptr %add_kernel_at, align 8
  %launched = call i32 %add_kernel(ptr %made, ptr %graph, ptr %last, i64 %count, ptr %kernel)
  br label %end
copying:
  call void @describe_copy(ptr %moved, ptr %step, ptr %addresses)
  %add_copy_at = call ptr @gpu.add_copy(ptr %record)
  %add_copy = load ptr, ptr %add_copy_at, align 8
  %context_at = call ptr @gpu.context(ptr %record)
  %context = load ptr, ptr %context_at, align 8
  %copied = call i32 %add_copy(ptr %made, ptr %graph, ptr %last, i64 %count, ptr %moved, ptr %context)
  br label %end
end:
  %status = phi i32 [ %launched, %launching ], [ %copied, %copying ]
  %is_good = icmp eq i32 %status, 0
  br i1 %is_good, label %keep, label %return
keep:
  %node = load ptr, ptr %made, align 8
  store ptr %node, ptr %last, align 8
  %node_at = getelementptr inbounds i64, ptr %step, i64 2
  store ptr %node, ptr %node_at, align 8
  br label %return
return:
  ret i32 %status
}

; Tell a step's node the addresses of this call, if one of them is another one.
define private i32 @set_node(ptr %record, ptr %step, ptr %addresses, ptr %values, ptr %pointers) {
entry:
  %kernel = alloca %KernelNode, align 8
  %moved = alloca %CopyNode, align 8
  %before_at = call ptr @gpu.before(ptr %record)
  %before = load ptr, ptr %before_at, align 8
  %is_changed = call i1 @is_changed(ptr %step, ptr %addresses, ptr %before)
  br i1 %is_changed, label %tell, label %same
same:
  ret i32 0
tell:
  %graph_at = call ptr @gpu.graph(ptr %record)
  %graph = load ptr, ptr %graph_at, align 8
  %node_at = getelementptr inbounds i64, ptr %step, i64 2
  %node = load ptr, ptr %node_at, align 8
  %kind = call i64 @word(ptr %step, i64 0)
  %is_launch = icmp eq i64 %kind, 1
  br i1 %is_launch, label %launching, label %copying
launching:
  call void @describe_launch(ptr %kernel, ptr %step, ptr %addresses, ptr %values, ptr %pointers)
  %set_kernel_at = call ptr @gpu.set_kernel(ptr %record)
  %set_kernel = load ptr, ptr %set_kernel_at, align 8
  %launched = call i32 %set_kernel(ptr %graph, ptr %node, ptr %kernel)
  ret i32 %launched
copying:
  call void @describe_copy(ptr %moved, ptr %step, ptr %addresses)
  %set_copy_at = call ptr @gpu.set_copy(ptr %record)
  %set_copy = load ptr, ptr %set_copy_at, align 8
  %context_at = call ptr @gpu.context(ptr %record)
  %context = load ptr, ptr %context_at, align 8
  %copied = call i32 %set_copy(ptr %graph, ptr %node, ptr %moved, ptr %context)
  ret i32 %copied
}

; ----------------------------------------------------------------------------------------------------------- whole programs

define private i32 @enter(ptr %record) {
  %call_at = call ptr @gpu.enter(ptr %record)
  %call = load ptr, ptr %call_at, align 8
  %context_at = call ptr @gpu.context(ptr %record)
  %context = load ptr, ptr %context_at, align 8
  %status = call i32 %call(ptr %context)
  ret i32 %status
}

define private void @leave(ptr %record) {
  %before = alloca ptr, align 8
  %call_at = call ptr @gpu.leave(ptr %record)
  %call = load ptr, ptr %call_at, align 8
  %status = call i32 %call(ptr %before)
  ret void
}

; A status that belongs to no step.
define private i64 @of_none(i32 %status) {
  %word = zext i32 %status to i64
  %is_good = icmp eq i32 %status, 0
  %where = select i1 %is_good, i64 0, i64 -4294967296
  %result = or i64 %where, %word
  ret i64 %result
}

; That of the event: the program itself is on the stream.
define private i64 @of_event(i32 %status) {
  %word = zext i32 %status to i64
  %is_good = icmp eq i32 %status, 0
  %where = select i1 %is_good, i64 0, i64 -8589934592
  %result = or i64 %where, %word
  ret i64 %result
}

; Every step, one after the other.  `mode` is 0: launch or copy; 1: make a node of the graph; 2: tell its node the addresses.
define private i64 @walk(ptr %record, i32 %mode, ptr %graph, ptr %addresses) {
entry:
  %most_at = call ptr @gpu.most_parameters(ptr %record)
  %most = load i64, ptr %most_at, align 8
  %values = alloca i64, i64 %most, align 8
  %pointers = alloca ptr, i64 %most, align 8
  %last = alloca ptr, align 8
  store ptr null, ptr %last, align 8
  %steps_at = call ptr @gpu.steps(ptr %record)
  %steps = load i64, ptr %steps_at, align 8
  %words_at = call ptr @gpu.step_words(ptr %record)
  %words = load ptr, ptr %words_at, align 8
  br label %test
test:
  %number = phi i64 [ 0, %entry ], [ %next, %did ]
  %step = phi ptr [ %words, %entry ], [ %following, %did ]
  %is_done = icmp eq i64 %number, %steps
  br i1 %is_done, label %good, label %do
do:
  %kind = call i64 @word(ptr %step, i64 0)
  switch i32 %mode, label %issue [ i32 1, label %add
                                   i32 2, label %set ]
add:
  %added = call i32 @add_node(ptr %record, ptr %graph, ptr %last, ptr %step, ptr %addresses, ptr %values, ptr %pointers)
  br label %did
set:
  %set_status = call i32 @set_node(ptr %record, ptr %step, ptr %addresses, ptr %values, ptr %pointers)
  br label %did
issue:
  %is_launch = icmp eq i64 %kind, 1
  br i1 %is_launch, label %launching, label %copying
launching:
  %launched = call i32 @launch(ptr %record, ptr %step, ptr %addresses, ptr %values, ptr %pointers)
  br label %did
copying:
  %copied = call i32 @copy(ptr %record, ptr %step, ptr %addresses)
  br label %did
did:
  %status = phi i32 [ %added, %add ], [ %set_status, %set ], [ %launched, %launching ], [ %copied, %copying ]
  %length = call i64 @word(ptr %step, i64 1)
  %following = getelementptr inbounds i64, ptr %step, i64 %length
  %next = add i64 %number, 1
  %is_good = icmp eq i32 %status, 0
  br i1 %is_good, label %test, label %failed
failed:
  %high = shl i64 %number, 32
  %low = zext i32 %status to i64
  %failure = or i64 %high, %low
  ret i64 %failure
good:
  ret i64 0
}

define private i32 @record_event(ptr %record, i64 %event) {
entry:
  %is_none = icmp eq i64 %event, 0
  br i1 %is_none, label %none, label %go
none:
  ret i32 0
go:
  %event_pointer = inttoptr i64 %event to ptr
  %stream_at = call ptr @gpu.stream(ptr %record)
  %stream = load ptr, ptr %stream_at, align 8
  %call_at = call ptr @gpu.record(ptr %record)
  %call = load ptr, ptr %call_at, align 8
  %status = call i32 %call(ptr %event_pointer, ptr %stream)
  ret i32 %status
}

define private i32 @launch_graph(ptr %record) {
  %graph_at = call ptr @gpu.graph(ptr %record)
  %graph = load ptr, ptr %graph_at, align 8
  %stream_at = call ptr @gpu.stream(ptr %record)
  %stream = load ptr, ptr %stream_at, align 8
  %call_at = call ptr @gpu.launch_graph(ptr %record)
  %call = load ptr, ptr %call_at, align 8
  %status = call i32 %call(ptr %graph, ptr %stream)
  ret i32 %status
}

; In the context: steps as `mode` says, the graph for mode 2, the event for modes 0 and 2.
define private i64 @inside(ptr %record, i32 %mode, i64 %first, ptr %addresses, i64 %count) {
entry:
  %entered = call i32 @enter(ptr %record)
  %is_in = icmp eq i32 %entered, 0
  br i1 %is_in, label %walk, label %outside
outside:
  %outside_result = call i64 @of_none(i32 %entered)
  ret i64 %outside_result
walk:
  %is_told = icmp eq i32 %mode, 2
  br i1 %is_told, label %compare, label %go
compare:
  %known_at = call ptr @gpu.before(ptr %record)
  %known = load ptr, ptr %known_at, align 8
  %is_same = call i1 @are_equal(ptr %known, ptr %addresses, i64 %count)
  br i1 %is_same, label %replay, label %go
go:
  %graph = inttoptr i64 %first to ptr
  %walked = call i64 @walk(ptr %record, i32 %mode, ptr %graph, ptr %addresses)
  %is_walked = icmp eq i64 %walked, 0
  br i1 %is_walked, label %walked_all, label %end
walked_all:
  switch i32 %mode, label %mark [ i32 1, label %keep
                                  i32 2, label %keep ]
keep:
  ; What the nodes know now.
  %before_at = call ptr @gpu.before(ptr %record)
  %before = load ptr, ptr %before_at, align 8
  %nbytes = shl i64 %count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %before, ptr %addresses, i64 %nbytes, i1 false)
  %is_build = icmp eq i32 %mode, 1
  br i1 %is_build, label %end, label %replay
replay:
  %replayed = call i32 @launch_graph(ptr %record)
  %replayed_word = call i64 @of_none(i32 %replayed)
  %is_replayed = icmp eq i32 %replayed, 0
  br i1 %is_replayed, label %mark, label %end
mark:
  %marked = call i32 @record_event(ptr %record, i64 %first)
  %marked_word = call i64 @of_event(i32 %marked)
  br label %end
end:
  %result = phi i64 [ %walked, %go ], [ 0, %keep ], [ %replayed_word, %replay ], [ %marked_word, %mark ]
  call void @leave(ptr %record)
  ret i64 %result
}

; ------------------------------------------------------------------------------------------------------ called by Python

; Numbers of a call; false with an exception pending if one of them is none.
define private i1 @numbers(ptr %arguments, i64 %count, ptr %out) {
entry:
  br label %test
test:
  %number = phi i64 [ 0, %entry ], [ %next, %read ]
  %is_done = icmp eq i64 %number, %count
  br i1 %is_done, label %check, label %read
read:
  %argument_at = getelementptr inbounds ptr, ptr %arguments, i64 %number
  %argument = load ptr, ptr %argument_at, align 8
  %value = call i64 @PyLong_AsUnsignedLongLong(ptr %argument)
  %at = getelementptr inbounds i64, ptr %out, i64 %number
  store i64 %value, ptr %at, align 8
  %next = add i64 %number, 1
  br label %test
check:
  %error = call ptr @PyErr_Occurred()
  %is_good = icmp eq ptr %error, null
  ret i1 %is_good
}

define private ptr @called(ptr %self, ptr %arguments, i64 %count, i32 %mode) {
entry:
  %record_word = call i64 @PyLong_AsUnsignedLongLong(ptr %self)
  %record = inttoptr i64 %record_word to ptr
  %addresses = alloca i64, i64 %count, align 8
  %is_good = call i1 @numbers(ptr %arguments, i64 %count, ptr %addresses)
  br i1 %is_good, label %go, label %bad
bad:
  ret ptr null
go:
  %first = load i64, ptr %addresses, align 8
  store i64 0, ptr %addresses, align 8
  %thread = call ptr @PyEval_SaveThread()
  %result = call i64 @inside(ptr %record, i32 %mode, i64 %first, ptr %addresses, i64 %count)
  call void @PyEval_RestoreThread(ptr %thread)
  %object = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %object
}

define ptr @hlojit_gpu_run(ptr %self, ptr %arguments, i64 %count) {
  %result = call ptr @called(ptr %self, ptr %arguments, i64 %count, i32 0)
  ret ptr %result
}

define ptr @hlojit_gpu_build(ptr %self, ptr %arguments, i64 %count) {
  %result = call ptr @called(ptr %self, ptr %arguments, i64 %count, i32 1)
  ret ptr %result
}

define ptr @hlojit_gpu_replay(ptr %self, ptr %arguments, i64 %count) {
  %result = call ptr @called(ptr %self, ptr %arguments, i64 %count, i32 2)
  ret ptr %result
}

; PyObject *hlojit_gpu_look(PyObject *record, PyObject *const *arguments, Py_ssize_t count)
;
; The status of an event (the first argument), looked at up to so often (the second) while it has not happened.
define ptr @hlojit_gpu_look(ptr %self, ptr %arguments, i64 %count) {
entry:
  %record_word = call i64 @PyLong_AsUnsignedLongLong(ptr %self)
  %record = inttoptr i64 %record_word to ptr
  %given = alloca [2 x i64], align 8
  %is_good = call i1 @numbers(ptr %arguments, i64 2, ptr %given)
  br i1 %is_good, label %go, label %bad
bad:
  ret ptr null
go:
  %event_word = call i64 @word(ptr %given, i64 0)
  %event = inttoptr i64 %event_word to ptr
  %times = call i64 @word(ptr %given, i64 1)
  %query_at = call ptr @gpu.query(ptr %record)
  %query = load ptr, ptr %query_at, align 8
  %pending_at = call ptr @gpu.pending(ptr %record)
  %pending_word = load i64, ptr %pending_at, align 8
  %pending = trunc i64 %pending_word to i32
  %thread = call ptr @PyEval_SaveThread()
  %entered = call i32 @enter(ptr %record)
  %is_in = icmp eq i32 %entered, 0
  br i1 %is_in, label %look, label %end
look:
  %left = phi i64 [ %times, %go ], [ %fewer, %again ]
  %status = call i32 %query(ptr %event)
  %is_pending = icmp eq i32 %status, %pending
  %fewer = add i64 %left, -1
  br i1 %is_pending, label %again, label %over
again:
  %is_last = icmp sle i64 %fewer, 0
  br i1 %is_last, label %over, label %look
over:
  call void @leave(ptr %record)
  br label %end
end:
  %result = phi i32 [ %entered, %go ], [ %status, %over ]
  call void @PyEval_RestoreThread(ptr %thread)
  %wide = zext i32 %result to i64
  %object = call ptr @PyLong_FromLongLong(i64 %wide)
  ret ptr %object
}

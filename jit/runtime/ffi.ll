; What foreign functions see of hlojit: the table of functions of XLA's foreign function interface (XLA_FFI_Api, version 0.3)
; and what happens when one fails.  Loaded by the first program that calls one.
;
; Every function takes the address of a structure: its size, an extension, then what the comments name.  Errors are blocks
; of the C library's memory: code (i32), bytes of the message (i64 at 8), the message, which ends in a zero.

declare ptr @malloc(i64)
declare void @free(ptr)
declare i64 @strlen(ptr)
declare ptr @hlojit_allocate(i64)
declare void @hlojit_release(ptr)
declare void @hlojit_fail(ptr, i32, i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

@ffi.no_Handler_Register = private constant [67 x i8] c"XLA_FFI_Handler_Register is not offered by hlojit to its CPU calls\00"
@ffi.no_Stream_Get = private constant [61 x i8] c"XLA_FFI_Stream_Get is not offered by hlojit to its CPU calls\00"
@ffi.no_Type_Register = private constant [64 x i8] c"XLA_FFI_Type_Register is not offered by hlojit to its CPU calls\00"
@ffi.no_ExecutionContext_Get = private constant [71 x i8] c"XLA_FFI_ExecutionContext_Get is not offered by hlojit to its CPU calls\00"
@ffi.no_State_Set = private constant [60 x i8] c"XLA_FFI_State_Set is not offered by hlojit to its CPU calls\00"
@ffi.no_State_Get = private constant [60 x i8] c"XLA_FFI_State_Get is not offered by hlojit to its CPU calls\00"
@ffi.no_Future_Create = private constant [64 x i8] c"XLA_FFI_Future_Create is not offered by hlojit to its CPU calls\00"
@ffi.no_Future_SetAvailable = private constant [70 x i8] c"XLA_FFI_Future_SetAvailable is not offered by hlojit to its CPU calls\00"
@ffi.no_Future_SetError = private constant [66 x i8] c"XLA_FFI_Future_SetError is not offered by hlojit to its CPU calls\00"
@ffi.exhausted = private constant [18 x i8] c"no memory is left\00"

; ptr ffi.error(ptr message, i32 code): an error object.  Where there is no memory for one, the failure of all failures
; is a constant that nobody frees.
define private ptr @ffi.error(ptr %message, i32 %code) {
entry:
  %length = call i64 @strlen(ptr %message)
  %bytes = add i64 %length, 17
  %block = call ptr @malloc(i64 %bytes)
  %is_refused = icmp eq ptr %block, null
  br i1 %is_refused, label %refused, label %fill
refused:
  ret ptr @ffi.out_of_memory
fill:
  store i32 %code, ptr %block, align 8
  %length_at = getelementptr inbounds i8, ptr %block, i64 8
  store i64 %length, ptr %length_at, align 8
  %text = getelementptr inbounds i8, ptr %block, i64 16
  %text_bytes = add i64 %length, 1
  call void @llvm.memcpy.p0.p0.i64(ptr %text, ptr %message, i64 %text_bytes, i1 false)
  ret ptr %block
}

@ffi.out_of_memory = private constant { i32, i64, [18 x i8] } { i32 8, i64 17, [18 x i8] c"no memory is left\00" }, align 8

; Error_Create: message at 16, code at 24.
define private ptr @ffi.error_create(ptr %arguments) {
  %message_at = getelementptr inbounds i8, ptr %arguments, i64 16
  %message = load ptr, ptr %message_at, align 8
  %code_at = getelementptr inbounds i8, ptr %arguments, i64 24
  %code = load i32, ptr %code_at, align 8
  %error = call ptr @ffi.error(ptr %message, i32 %code)
  ret ptr %error
}

; Error_GetMessage: error at 16; the message goes to 24.
define private void @ffi.error_message(ptr %arguments) {
  %error_at = getelementptr inbounds i8, ptr %arguments, i64 16
  %error = load ptr, ptr %error_at, align 8
  %text = getelementptr inbounds i8, ptr %error, i64 16
  %message_at = getelementptr inbounds i8, ptr %arguments, i64 24
  store ptr %text, ptr %message_at, align 8
  ret void
}

; Error_Destroy: error at 16.
define private void @ffi.error_destroy(ptr %arguments) {
  %error_at = getelementptr inbounds i8, ptr %arguments, i64 16
  %error = load ptr, ptr %error_at, align 8
  call void @hlojit_ffi_destroy(ptr %error)
  ret void
}

; What a call of hlojit_ffi_python ends with that Python's function has not ended itself: Ctrl-C came first.
@hlojit_ffi_interrupted = constant { i32, i64, [12 x i8] } { i32 1, i64 11, [12 x i8] c"interrupted\00" }, align 8

; void (frame, ptr* error): the function behind hlojit_ffi_python, which stores null, or an error object, as its last act.
@hlojit_ffi_python_function = global ptr null

; ptr hlojit_ffi_python(ptr frame): a handler written in Python.  What a callback of ctypes returns when Ctrl-C comes within it
; is any number, so it returns nothing.
define ptr @hlojit_ffi_python(ptr %frame) {
  %slot = alloca ptr, align 8
  store ptr @hlojit_ffi_interrupted, ptr %slot, align 8
  %function = load ptr, ptr @hlojit_ffi_python_function, align 8
  call void %function(ptr %frame, ptr %slot)
  %error = load ptr, ptr %slot, align 8
  ret ptr %error
}

define void @hlojit_ffi_destroy(ptr %error) {
entry:
  %is_exhausted = icmp eq ptr %error, @ffi.out_of_memory
  %is_interrupted = icmp eq ptr %error, @hlojit_ffi_interrupted
  %is_constant = or i1 %is_exhausted, %is_interrupted
  br i1 %is_constant, label %done, label %free
free:
  call void @free(ptr %error)
  br label %done
done:
  ret void
}

; What there is no answer to here: streams, states, registration, results that come later.
define private ptr @ffi.Handler_Register(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_Handler_Register, i32 12)
  ret ptr %error
}

define private ptr @ffi.Stream_Get(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_Stream_Get, i32 12)
  ret ptr %error
}

define private ptr @ffi.Type_Register(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_Type_Register, i32 12)
  ret ptr %error
}

define private ptr @ffi.ExecutionContext_Get(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_ExecutionContext_Get, i32 12)
  ret ptr %error
}

define private ptr @ffi.State_Set(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_State_Set, i32 12)
  ret ptr %error
}

define private ptr @ffi.State_Get(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_State_Get, i32 12)
  ret ptr %error
}

define private ptr @ffi.Future_Create(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_Future_Create, i32 12)
  ret ptr %error
}

define private ptr @ffi.Future_SetAvailable(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_Future_SetAvailable, i32 12)
  ret ptr %error
}

define private ptr @ffi.Future_SetError(ptr %arguments) {
  %error = call ptr @ffi.error(ptr @ffi.no_Future_SetError, i32 12)
  ret ptr %error
}

; DeviceMemory_Allocate: context at 16, size at 24, alignment at 32; the block goes to 40.
define private ptr @ffi.allocate(ptr %arguments) {
entry:
  %size_at = getelementptr inbounds i8, ptr %arguments, i64 24
  %size = load i64, ptr %size_at, align 8
  %alignment_at = getelementptr inbounds i8, ptr %arguments, i64 32
  %alignment = load i64, ptr %alignment_at, align 8
  %is_aligned = icmp ule i64 %alignment, 64
  br i1 %is_aligned, label %take, label %refuse
take:
  %block = call ptr @hlojit_allocate(i64 %size)
  %is_refused = icmp eq ptr %block, null
  br i1 %is_refused, label %refuse, label %give
give:
  %block_at = getelementptr inbounds i8, ptr %arguments, i64 40
  store ptr %block, ptr %block_at, align 8
  ret ptr null
refuse:
  %error = call ptr @ffi.error(ptr @ffi.exhausted, i32 8)
  ret ptr %error
}

; DeviceMemory_Free: context at 16, size at 24, block at 32.
define private ptr @ffi.free(ptr %arguments) {
  %block_at = getelementptr inbounds i8, ptr %arguments, i64 32
  %block = load ptr, ptr %block_at, align 8
  call void @hlojit_release(ptr %block)
  ret ptr null
}

; ThreadPool_Schedule: context at 16, task at 24, its data at 32.  The task runs at once, on the caller's thread.
define private ptr @ffi.schedule(ptr %arguments) {
  %task_at = getelementptr inbounds i8, ptr %arguments, i64 24
  %task = load ptr, ptr %task_at, align 8
  %data_at = getelementptr inbounds i8, ptr %arguments, i64 32
  %data = load ptr, ptr %data_at, align 8
  call void %task(ptr %data)
  ret ptr null
}

; ThreadPool_NumThreads: context at 16, where the number goes at 24.
define private ptr @ffi.threads(ptr %arguments) {
  %number_at = getelementptr inbounds i8, ptr %arguments, i64 24
  %number = load ptr, ptr %number_at, align 8
  store i64 1, ptr %number, align 8
  ret ptr null
}

; RunId_Get: context at 16; the number goes to 24.  No two calls that run at one time have one context.
define private ptr @ffi.run(ptr %arguments) {
  %context_at = getelementptr inbounds i8, ptr %arguments, i64 16
  %context = load i64, ptr %context_at, align 8
  %number_at = getelementptr inbounds i8, ptr %arguments, i64 24
  store i64 %context, ptr %number_at, align 8
  ret ptr null
}

; DeviceOrdinal_Get: context at 16; the number goes to 24.
define private ptr @ffi.device(ptr %arguments) {
  %context_at = getelementptr inbounds i8, ptr %arguments, i64 16
  %context = load ptr, ptr %context_at, align 8
  %replica_at = call ptr @context.replica(ptr %context)
  %replica = load i32, ptr %replica_at, align 4
  %number_at = getelementptr inbounds i8, ptr %arguments, i64 24
  store i32 %replica, ptr %number_at, align 8
  ret ptr null
}

@hlojit_ffi_api = constant { i64, ptr, i64, ptr, i32, i32, ptr, [18 x ptr] } {
  i64 192, ptr null,
  i64 24, ptr null, i32 0, i32 3,
  ptr null,
  [18 x ptr] [
    ptr @ffi.error_create, ptr @ffi.error_message, ptr @ffi.error_destroy,
    ptr @ffi.Handler_Register, ptr @ffi.Stream_Get, ptr @ffi.Type_Register, ptr @ffi.ExecutionContext_Get,
    ptr @ffi.State_Set, ptr @ffi.State_Get,
    ptr @ffi.allocate, ptr @ffi.free, ptr @ffi.schedule, ptr @ffi.threads,
    ptr @ffi.Future_Create, ptr @ffi.Future_SetAvailable, ptr @ffi.Future_SetError,
    ptr @ffi.run, ptr @ffi.device
  ]
}, align 8

; void hlojit_ffi_fail(ptr context, i32 status, ptr error, ptr place): the call failed.  The error lives until it is explained;
; the place is a text that ends in a zero, part of the kernel.
define void @hlojit_ffi_fail(ptr %context, i32 %status, ptr %error, ptr %place) {
entry:
  %detail0 = ptrtoint ptr %error to i64
  %detail1 = ptrtoint ptr %place to i64
  call void @hlojit_fail(ptr %context, i32 %status, i64 %detail0, i64 %detail1)
  %first_at = call ptr @context.detail0(ptr %context)
  %first = load i64, ptr %first_at, align 8
  %is_ours = icmp eq i64 %first, %detail0
  br i1 %is_ours, label %done, label %late
late:
  call void @hlojit_ffi_destroy(ptr %error)
  br label %done
done:
  ret void
}

; What differs between processors: x86-64.

; Numbers of Linux system calls.
@syscall.futex = private constant i64 202

declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

; A clock that costs a few nanoseconds and is the same on all cores.
define private i64 @ticks() alwaysinline {
  %now = call i64 @llvm.readcyclecounter()
  ret i64 %now
}

; Tell the core that this is a spinning loop.
define private void @relax() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}

; Set the floating-point environment to round to nearest, denormals kept, exceptions masked, and return what it was.
; Writing MXCSR is slow, reading is not, so write only where the control bits (above the six sticky flags) differ.
define private i64 @float_environment.enter() alwaysinline {
entry:
  %slot = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %before = load i32, ptr %slot, align 4
  %control = and i32 %before, 65472
  %is_default = icmp eq i32 %control, 8064
  br i1 %is_default, label %done, label %change
change:
  store i32 8064, ptr %slot, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %done
done:
  %result = zext i32 %before to i64
  ret i64 %result
}

define private void @float_environment.leave(i64 %before) alwaysinline {
entry:
  %slot = alloca i32, align 4
  %control = and i64 %before, 65472
  %is_default = icmp eq i64 %control, 8064
  br i1 %is_default, label %done, label %change
change:
  %word = trunc i64 %before to i32
  store i32 %word, ptr %slot, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %done
done:
  ret void
}

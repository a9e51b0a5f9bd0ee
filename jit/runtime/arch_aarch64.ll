; What differs between processors: aarch64.

; Numbers of Linux system calls.
@syscall.futex = private constant i64 98

declare i64 @llvm.readsteadycounter()
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

; A clock that costs a few nanoseconds and is the same on all cores (CNTVCT_EL0; the cycle counter is not open to users).
define private i64 @ticks() alwaysinline {
  %now = call i64 @llvm.readsteadycounter()
  ret i64 %now
}

; Tell the core that this is a spinning loop (hint 1 is YIELD).
define private void @relax() alwaysinline {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

; Set the floating-point environment to its default (FPCR = 0: round to nearest, denormals kept), return what it was.
define private i64 @float_environment.enter() alwaysinline {
entry:
  %before = call i64 @llvm.aarch64.get.fpcr()
  %is_default = icmp eq i64 %before, 0
  br i1 %is_default, label %done, label %change
change:
  call void @llvm.aarch64.set.fpcr(i64 0)
  br label %done
done:
  ret i64 %before
}

define private void @float_environment.leave(i64 %before) alwaysinline {
entry:
  %is_default = icmp eq i64 %before, 0
  br i1 %is_default, label %done, label %change
change:
  call void @llvm.aarch64.set.fpcr(i64 %before)
  br label %done
done:
  ret void
}

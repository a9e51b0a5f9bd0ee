; What differs between processors: any other one.  The floating-point environment is left as it is.

declare i64 @llvm.readcyclecounter()

define private i64 @ticks() alwaysinline {
  %now = call i64 @llvm.readcyclecounter()
  ret i64 %now
}

define private i64 @float_environment.enter() alwaysinline {
  ret i64 0
}

define private void @float_environment.leave(i64 %before) alwaysinline {
  ret void
}

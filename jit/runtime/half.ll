; Conversions between half and wider numbers that LLVM calls, under these names, where a processor has no instruction: all of
; them without F16C, and on most processors the one from double, which LLVM makes of two where that gives the same number.
; Integers only, but for two exact steps, so that none of them calls itself.

; IEEE 754's rounding to nearest, ties to even; NaN stay NaN with the upper bits of their payload.
define half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %sign.wide = lshr i32 %bits, 16
  %sign = and i32 %sign.wide, 32768
  %magnitude = and i32 %bits, 2147483647
  ; normal: the exponent counts from 15 and not from 127, 13 bits less; a carry goes into the exponent, up to infinity
  %kept = lshr i32 %magnitude, 13
  %odd = and i32 %kept, 1
  %moved = sub i32 %magnitude, 939524096
  %raised = add i32 %moved, 4095
  %even = add i32 %raised, %odd
  %normal = lshr i32 %even, 13
  ; below 2**-14: a sum with 0.5, whose last bit is 2**-24, is the number rounded to what half has there
  %number = bitcast i32 %magnitude to float
  %sum = fadd float %number, 5.000000e-01
  %sum.bits = bitcast float %sum to i32
  %small = sub i32 %sum.bits, 1056964608
  %is.small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is.small, i32 %small, i32 %normal
  %is.large = icmp uge i32 %magnitude, 1199570944
  %limited = select i1 %is.large, i32 31744, i32 %finite
  %payload = and i32 %kept, 1023
  %nan = or i32 %payload, 32256
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %found = select i1 %is.nan, i32 %nan, i32 %limited
  %signed = or i32 %found, %sign
  %narrow = trunc i32 %signed to i16
  %half = bitcast i16 %narrow to half
  ret half %half
}

; By way of a float whose last bit says whether anything was cut off, which the second rounding then sees (rounding to odd).
define half @__truncdfhf2(double %x) nounwind {
  %bits = bitcast double %x to i64
  %cut = and i64 %bits, 536870911
  %kept = and i64 %bits, -536870912
  %odd = or i64 %kept, 536870912
  %is.exact = icmp eq i64 %cut, 0
  %sticky = select i1 %is.exact, i64 %kept, i64 %odd
  %number = bitcast i64 %sticky to double
  %float = fptrunc double %number to float
  %half = call half @__truncsfhf2(float %float)
  ret half %half
}

define float @__extendhfsf2(half %x) nounwind {
  %narrow = bitcast half %x to i16
  %bits = zext i16 %narrow to i32
  %sign.bit = and i32 %bits, 32768
  %sign = shl i32 %sign.bit, 16
  %magnitude = and i32 %bits, 32767
  %shifted = shl i32 %magnitude, 13
  %exponent = and i32 %shifted, 260046848
  %normal = add i32 %shifted, 939524096
  %special = add i32 %shifted, 1879048192
  ; denormal: 2**-14 more than it is, taken off again
  %above = add i32 %shifted, 947912704
  %above.number = bitcast i32 %above to float
  %denormal.number = fsub float %above.number, 0x3F10000000000000
  %denormal = bitcast float %denormal.number to i32
  %is.special = icmp eq i32 %exponent, 260046848
  %is.denormal = icmp eq i32 %exponent, 0
  %finite = select i1 %is.denormal, i32 %denormal, i32 %normal
  %found = select i1 %is.special, i32 %special, i32 %finite
  %signed = or i32 %found, %sign
  %number = bitcast i32 %signed to float
  ret float %number
}

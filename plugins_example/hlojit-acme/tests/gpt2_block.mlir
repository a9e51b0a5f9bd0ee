module @model {
  func.func public @main(%0: tensor<24xi32>, %1: tensor<100x64xf32>, %2: tensor<24x64xf32>, %3: tensor<64xf32>, %4: tensor<64xf32>, %5: tensor<64x192xf32>, %6: tensor<192xf32>, %7: tensor<64x64xf32>, %8: tensor<64xf32>, %9: tensor<64xf32>, %10: tensor<64xf32>, %11: tensor<64x256xf32>, %12: tensor<256xf32>, %13: tensor<256x64xf32>, %14: tensor<64xf32>) -> (tensor<24x64xf32>, tensor<5xf32>) {
    %15 = stablehlo.convert %0 : (tensor<24xi32>) -> tensor<24xi64>
    %16 = stablehlo.constant dense<0> : tensor<i64>
    %17 = stablehlo.broadcast_in_dim %16, dims = [] : (tensor<i64>) -> tensor<24xi64>
    %18 = stablehlo.compare LT, %15, %17 : (tensor<24xi64>, tensor<24xi64>) -> tensor<24xi1>
    %19 = stablehlo.constant dense<100> : tensor<i64>
    %20 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<i64>) -> tensor<24xi64>
    %21 = stablehlo.add %15, %20 : tensor<24xi64>
    %22 = stablehlo.select %18, %21, %15 : tensor<24xi1>, tensor<24xi64>
    %23 = stablehlo.reshape %22 : (tensor<24xi64>) -> tensor<24x1xi64>
    %24 = "stablehlo.gather"(%1, %23) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 64>, indices_are_sorted = false}> : (tensor<100x64xf32>, tensor<24x1xi64>) -> tensor<24x64xf32>
    %25 = stablehlo.add %24, %2 : tensor<24x64xf32>
    %26 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.reduce(%25 init: %26) applies stablehlo.add across dimensions = [1] : (tensor<24x64xf32>, tensor<f32>) -> tensor<24xf32>
    %28 = stablehlo.reshape %27 : (tensor<24xf32>) -> tensor<24x1xf32>
    %29 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %30 = stablehlo.broadcast_in_dim %29, dims = [] : (tensor<f32>) -> tensor<24x1xf32>
    %31 = stablehlo.divide %28, %30 : tensor<24x1xf32>
    %32 = stablehlo.broadcast_in_dim %31, dims = [0, 1] : (tensor<24x1xf32>) -> tensor<24x64xf32>
    %33 = stablehlo.subtract %25, %32 : tensor<24x64xf32>
    %34 = stablehlo.multiply %33, %33 : tensor<24x64xf32>
    %35 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %36 = stablehlo.reduce(%34 init: %35) applies stablehlo.add across dimensions = [1] : (tensor<24x64xf32>, tensor<f32>) -> tensor<24xf32>
    %37 = stablehlo.reshape %36 : (tensor<24xf32>) -> tensor<24x1xf32>
    %38 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %39 = stablehlo.broadcast_in_dim %38, dims = [] : (tensor<f32>) -> tensor<24x1xf32>
    %40 = stablehlo.divide %37, %39 : tensor<24x1xf32>
    %41 = stablehlo.constant dense<1.0e-05> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %41, dims = [] : (tensor<f32>) -> tensor<24x1xf32>
    %43 = stablehlo.add %40, %42 : tensor<24x1xf32>
    %44 = stablehlo.sqrt %43 : tensor<24x1xf32>
    %45 = stablehlo.broadcast_in_dim %44, dims = [0, 1] : (tensor<24x1xf32>) -> tensor<24x64xf32>
    %46 = stablehlo.divide %33, %45 : tensor<24x64xf32>
    %47 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<64xf32>) -> tensor<24x64xf32>
    %48 = stablehlo.multiply %46, %47 : tensor<24x64xf32>
    %49 = stablehlo.broadcast_in_dim %4, dims = [1] : (tensor<64xf32>) -> tensor<24x64xf32>
    %50 = stablehlo.add %48, %49 : tensor<24x64xf32>
    %51 = stablehlo.dot_general %50, %5, contracting_dims = [1] x [0] : (tensor<24x64xf32>, tensor<64x192xf32>) -> tensor<24x192xf32>
    %52 = stablehlo.broadcast_in_dim %6, dims = [1] : (tensor<192xf32>) -> tensor<24x192xf32>
    %53 = stablehlo.add %51, %52 : tensor<24x192xf32>
    %54 = stablehlo.slice %53 [0:24, 0:64] : (tensor<24x192xf32>) -> tensor<24x64xf32>
    %55 = stablehlo.reshape %54 : (tensor<24x64xf32>) -> tensor<24x4x16xf32>
    %56 = stablehlo.transpose %55, dims = [1, 0, 2] : (tensor<24x4x16xf32>) -> tensor<4x24x16xf32>
    %57 = stablehlo.slice %53 [0:24, 64:128] : (tensor<24x192xf32>) -> tensor<24x64xf32>
    %58 = stablehlo.reshape %57 : (tensor<24x64xf32>) -> tensor<24x4x16xf32>
    %59 = stablehlo.transpose %58, dims = [1, 0, 2] : (tensor<24x4x16xf32>) -> tensor<4x24x16xf32>
    %60 = stablehlo.slice %53 [0:24, 128:192] : (tensor<24x192xf32>) -> tensor<24x64xf32>
    %61 = stablehlo.reshape %60 : (tensor<24x64xf32>) -> tensor<24x4x16xf32>
    %62 = stablehlo.transpose %61, dims = [1, 0, 2] : (tensor<24x4x16xf32>) -> tensor<4x24x16xf32>
    %63 = stablehlo.transpose %59, dims = [0, 2, 1] : (tensor<4x24x16xf32>) -> tensor<4x16x24xf32>
    %64 = stablehlo.dot_general %56, %63, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x24x16xf32>, tensor<4x16x24xf32>) -> tensor<4x24x24xf32>
    %65 = stablehlo.constant dense<2.500000e-01> : tensor<f32>
    %66 = stablehlo.broadcast_in_dim %65, dims = [] : (tensor<f32>) -> tensor<4x24x24xf32>
    %67 = stablehlo.multiply %64, %66 : tensor<4x24x24xf32>
    %68 = stablehlo.constant dense<"0x010000000000000000000000000000000000000000000000010100000000000000000000000000000000000000000000010101000000000000000000000000000000000000000000010101010000000000000000000000000000000000000000010101010100000000000000000000000000000000000000010101010101000000000000000000000000000000000000010101010101010000000000000000000000000000000000010101010101010100000000000000000000000000000000010101010101010101000000000000000000000000000000010101010101010101010000000000000000000000000000010101010101010101010100000000000000000000000000010101010101010101010101000000000000000000000000010101010101010101010101010000000000000000000000010101010101010101010101010100000000000000000000010101010101010101010101010101000000000000000000010101010101010101010101010101010000000000000000010101010101010101010101010101010100000000000000010101010101010101010101010101010101000000000000010101010101010101010101010101010101010000000000010101010101010101010101010101010101010100000000010101010101010101010101010101010101010101000000010101010101010101010101010101010101010101010000010101010101010101010101010101010101010101010100010101010101010101010101010101010101010101010101"> : tensor<24x24xi1>
    %69 = stablehlo.constant dense<-1.000000e+09> : tensor<f32>
    %70 = stablehlo.broadcast_in_dim %68, dims = [1, 2] : (tensor<24x24xi1>) -> tensor<4x24x24xi1>
    %71 = stablehlo.broadcast_in_dim %69, dims = [] : (tensor<f32>) -> tensor<4x24x24xf32>
    %72 = stablehlo.select %70, %67, %71 : tensor<4x24x24xi1>, tensor<4x24x24xf32>
    %73 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %74 = stablehlo.reduce(%72 init: %73) applies stablehlo.maximum across dimensions = [2] : (tensor<4x24x24xf32>, tensor<f32>) -> tensor<4x24xf32>
    %75 = stablehlo.reshape %74 : (tensor<4x24xf32>) -> tensor<4x24x1xf32>
    %76 = stablehlo.broadcast_in_dim %75, dims = [0, 1, 2] : (tensor<4x24x1xf32>) -> tensor<4x24x24xf32>
    %77 = stablehlo.subtract %72, %76 : tensor<4x24x24xf32>
    %78 = stablehlo.exponential %77 : tensor<4x24x24xf32>
    %79 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %80 = stablehlo.reduce(%78 init: %79) applies stablehlo.add across dimensions = [2] : (tensor<4x24x24xf32>, tensor<f32>) -> tensor<4x24xf32>
    %81 = stablehlo.reshape %80 : (tensor<4x24xf32>) -> tensor<4x24x1xf32>
    %82 = stablehlo.broadcast_in_dim %81, dims = [0, 1, 2] : (tensor<4x24x1xf32>) -> tensor<4x24x24xf32>
    %83 = stablehlo.divide %78, %82 : tensor<4x24x24xf32>
    %84 = stablehlo.dot_general %83, %62, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x24x24xf32>, tensor<4x24x16xf32>) -> tensor<4x24x16xf32>
    %85 = stablehlo.transpose %84, dims = [1, 0, 2] : (tensor<4x24x16xf32>) -> tensor<24x4x16xf32>
    %86 = stablehlo.reshape %85 : (tensor<24x4x16xf32>) -> tensor<24x64xf32>
    %87 = stablehlo.dot_general %86, %7, contracting_dims = [1] x [0] : (tensor<24x64xf32>, tensor<64x64xf32>) -> tensor<24x64xf32>
    %88 = stablehlo.add %25, %87 : tensor<24x64xf32>
    %89 = stablehlo.broadcast_in_dim %8, dims = [1] : (tensor<64xf32>) -> tensor<24x64xf32>
    %90 = stablehlo.add %88, %89 : tensor<24x64xf32>
    %91 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %92 = stablehlo.reduce(%90 init: %91) applies stablehlo.add across dimensions = [1] : (tensor<24x64xf32>, tensor<f32>) -> tensor<24xf32>
    %93 = stablehlo.reshape %92 : (tensor<24xf32>) -> tensor<24x1xf32>
    %94 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %95 = stablehlo.broadcast_in_dim %94, dims = [] : (tensor<f32>) -> tensor<24x1xf32>
    %96 = stablehlo.divide %93, %95 : tensor<24x1xf32>
    %97 = stablehlo.broadcast_in_dim %96, dims = [0, 1] : (tensor<24x1xf32>) -> tensor<24x64xf32>
    %98 = stablehlo.subtract %90, %97 : tensor<24x64xf32>
    %99 = stablehlo.multiply %98, %98 : tensor<24x64xf32>
    %100 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %101 = stablehlo.reduce(%99 init: %100) applies stablehlo.add across dimensions = [1] : (tensor<24x64xf32>, tensor<f32>) -> tensor<24xf32>
    %102 = stablehlo.reshape %101 : (tensor<24xf32>) -> tensor<24x1xf32>
    %103 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %103, dims = [] : (tensor<f32>) -> tensor<24x1xf32>
    %105 = stablehlo.divide %102, %104 : tensor<24x1xf32>
    %106 = stablehlo.constant dense<1.0e-05> : tensor<f32>
    %107 = stablehlo.broadcast_in_dim %106, dims = [] : (tensor<f32>) -> tensor<24x1xf32>
    %108 = stablehlo.add %105, %107 : tensor<24x1xf32>
    %109 = stablehlo.sqrt %108 : tensor<24x1xf32>
    %110 = stablehlo.broadcast_in_dim %109, dims = [0, 1] : (tensor<24x1xf32>) -> tensor<24x64xf32>
    %111 = stablehlo.divide %98, %110 : tensor<24x64xf32>
    %112 = stablehlo.broadcast_in_dim %9, dims = [1] : (tensor<64xf32>) -> tensor<24x64xf32>
    %113 = stablehlo.multiply %111, %112 : tensor<24x64xf32>
    %114 = stablehlo.broadcast_in_dim %10, dims = [1] : (tensor<64xf32>) -> tensor<24x64xf32>
    %115 = stablehlo.add %113, %114 : tensor<24x64xf32>
    %116 = stablehlo.dot_general %115, %11, contracting_dims = [1] x [0] : (tensor<24x64xf32>, tensor<64x256xf32>) -> tensor<24x256xf32>
    %117 = stablehlo.broadcast_in_dim %12, dims = [1] : (tensor<256xf32>) -> tensor<24x256xf32>
    %118 = stablehlo.add %116, %117 : tensor<24x256xf32>
    %119 = stablehlo.constant dense<0.044715> : tensor<f32>
    %120 = stablehlo.broadcast_in_dim %119, dims = [] : (tensor<f32>) -> tensor<24x256xf32>
    %121 = stablehlo.multiply %120, %118 : tensor<24x256xf32>
    %122 = stablehlo.multiply %121, %118 : tensor<24x256xf32>
    %123 = stablehlo.multiply %122, %118 : tensor<24x256xf32>
    %124 = stablehlo.add %118, %123 : tensor<24x256xf32>
    %125 = stablehlo.constant dense<0.7978846> : tensor<f32>
    %126 = stablehlo.broadcast_in_dim %125, dims = [] : (tensor<f32>) -> tensor<24x256xf32>
    %127 = stablehlo.multiply %126, %124 : tensor<24x256xf32>
    %128 = stablehlo.tanh %127 : tensor<24x256xf32>
    %129 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %130 = stablehlo.broadcast_in_dim %129, dims = [] : (tensor<f32>) -> tensor<24x256xf32>
    %131 = stablehlo.multiply %130, %118 : tensor<24x256xf32>
    %132 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %133 = stablehlo.broadcast_in_dim %132, dims = [] : (tensor<f32>) -> tensor<24x256xf32>
    %134 = stablehlo.add %133, %128 : tensor<24x256xf32>
    %135 = stablehlo.multiply %131, %134 : tensor<24x256xf32>
    %136 = stablehlo.dot_general %135, %13, contracting_dims = [1] x [0] : (tensor<24x256xf32>, tensor<256x64xf32>) -> tensor<24x64xf32>
    %137 = stablehlo.add %90, %136 : tensor<24x64xf32>
    %138 = stablehlo.broadcast_in_dim %14, dims = [1] : (tensor<64xf32>) -> tensor<24x64xf32>
    %139 = stablehlo.add %137, %138 : tensor<24x64xf32>
    %140 = stablehlo.slice %139 [23:24, 0:64] : (tensor<24x64xf32>) -> tensor<1x64xf32>
    %141 = stablehlo.reshape %140 : (tensor<1x64xf32>) -> tensor<64xf32>
    %142 = stablehlo.transpose %1, dims = [1, 0] : (tensor<100x64xf32>) -> tensor<64x100xf32>
    %143 = stablehlo.dot_general %141, %142, contracting_dims = [0] x [0] : (tensor<64xf32>, tensor<64x100xf32>) -> tensor<100xf32>
    %144 = "stablehlo.sort"(%143) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%arg0: tensor<f32>, %arg1: tensor<f32>):
      %145 = stablehlo.compare LT, %arg0, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %146 = stablehlo.compare NE, %arg1, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %147 = stablehlo.compare EQ, %arg0, %arg0 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %148 = stablehlo.and %146, %147 : tensor<i1>
      %149 = stablehlo.or %145, %148 : tensor<i1>
      stablehlo.return %149 : tensor<i1>
    }) : (tensor<100xf32>) -> tensor<100xf32>
    %150 = stablehlo.reverse %144, dims = [0] : tensor<100xf32>
    %151 = stablehlo.slice %150 [0:5] : (tensor<100xf32>) -> tensor<5xf32>
    return %139, %151 : tensor<24x64xf32>, tensor<5xf32>
  }
}

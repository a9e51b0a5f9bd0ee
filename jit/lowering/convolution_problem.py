"""A convolution in canonical form: sizes, and the stride of every dimension in input, kernel and output.

Attributes that may be absent get their defaults; spatial dimensions are in the order of the dimension numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlojit.ir.ops.views import ConvolutionView
from hlojit.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Spatial:
    """One spatial dimension: extents, window, and strides (in elements) in input, kernel and output."""

    input: int
    window: int
    output: int
    stride: int
    low: int
    high: int
    input_dilation: int
    window_dilation: int
    reversed: bool
    input_step: int
    kernel_step: int
    output_step: int

    @property
    def padded(self) -> int:
        """Extent that the windows cover: the dilated and padded input, as far as it is read."""
        return (self.output - 1) * self.stride + (self.window - 1) * self.window_dilation + 1

    @property
    def is_plain(self) -> bool:
        """Whether windows stay inside the input as it is."""
        return self.low == 0 and self.input_dilation == 1 and self.padded <= self.input


@dataclass(frozen=True, slots=True)
class ConvolutionProblem:
    """Sizes and strides; ``batch`` and the channel counts are those of one group."""

    spatial: tuple[Spatial, ...]
    batch: int
    groups: int
    channels: int
    features: int
    input_batch_step: int
    input_channel_step: int
    input_group_step: int
    kernel_channel_step: int
    kernel_feature_step: int
    output_batch_step: int
    output_feature_step: int

    @property
    def positions(self) -> int:
        """Output positions of one batch element."""
        return math.prod(axis.output for axis in self.spatial)

    @property
    def taps(self) -> int:
        """Positions of the window."""
        return math.prod(axis.window for axis in self.spatial)

    @property
    def terms(self) -> int:
        """Products that make one element of the result."""
        return self.taps * self.channels

    @property
    def macs(self) -> int:
        """Multiplications in all."""
        return self.batch * self.groups * self.positions * self.features * self.terms

    @property
    def is_plain(self) -> bool:
        """Whether the input can be read in place."""
        return all(axis.is_plain for axis in self.spatial)


def canonical_convolution(
    lhs: TensorType, rhs: TensorType, result: TensorType, attributes: Mapping[str, Any]
) -> ConvolutionProblem:
    """Read the attributes of ``stablehlo.convolution``."""
    conv = ConvolutionView.of_attributes(attributes)
    numbers, feature_groups, batch_groups = conv.numbers, conv.feature_groups, conv.batch_groups
    rank = len(numbers.input_spatial)
    spatial = tuple(
        Spatial(
            input=lhs.shape[numbers.input_spatial[i]],
            window=rhs.shape[numbers.kernel_spatial[i]],
            output=result.shape[numbers.output_spatial[i]],
            stride=conv.strides[i],
            low=conv.padding[i][0],
            high=conv.padding[i][1],
            input_dilation=conv.lhs_dilation[i],
            window_dilation=conv.rhs_dilation[i],
            reversed=conv.reversal[i],
            input_step=lhs.strides[numbers.input_spatial[i]],
            kernel_step=rhs.strides[numbers.kernel_spatial[i]],
            output_step=result.strides[numbers.output_spatial[i]],
        )
        for i in range(rank)
    )
    if not rank:
        spatial = (Spatial(1, 1, 1, 1, 0, 0, 1, 1, False, 0, 0, 0),)
    groups = feature_groups * batch_groups
    batch = lhs.shape[numbers.input_batch] // batch_groups
    channels = rhs.shape[numbers.kernel_input_feature]
    channel_step = lhs.strides[numbers.input_feature]
    batch_step = lhs.strides[numbers.input_batch]
    return ConvolutionProblem(
        spatial=spatial,
        batch=batch,
        groups=groups,
        channels=channels,
        features=rhs.shape[numbers.kernel_output_feature] // groups,
        input_batch_step=batch_step,
        input_channel_step=channel_step,
        input_group_step=channels * channel_step if feature_groups > 1 else batch * batch_step,
        kernel_channel_step=rhs.strides[numbers.kernel_input_feature],
        kernel_feature_step=rhs.strides[numbers.kernel_output_feature],
        output_batch_step=result.strides[numbers.output_batch],
        output_feature_step=result.strides[numbers.output_feature],
    )

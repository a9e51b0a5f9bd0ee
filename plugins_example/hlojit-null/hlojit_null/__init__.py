"""The null device: everything that a device has but the hardware."""

"""The CUDA error codes that the server of the virtual GPU returns."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """CUDA error codes, named as in the driver API without `CUDA_ERROR_`; `error_names.inc` lists all codes."""

    INVALID_VALUE = 1
    INVALID_IMAGE = 200
    NO_BINARY_FOR_GPU = 209
    INVALID_PTX = 218
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_TIMEOUT = 702
    ASSERT = 710
    MISALIGNED_ADDRESS = 716
    LAUNCH_FAILED = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    INVALID_CLUSTER_SIZE = 912
    UNKNOWN = 999


def error_name(code: int) -> str:
    """Return the name of an error code in the driver API."""
    return next((f"CUDA_ERROR_{known.name}" for known in ErrorCode if known == code), f"error {code}")

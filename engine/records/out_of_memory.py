"""Which failures are lack of memory: on a card, of its libraries, on the host. No torch."""

# Beside torch's own exception, by the texts of others: CUDA's bare error (an AcceleratorError), the libraries for
# matrix products and convolutions, which say that they could not be set up where they found no room for their
# workspace, Apple's and Intel's devices, and torch's allocator on the host, which raises a plain RuntimeError.
TEXTS = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "DefaultCPUAllocator",
    "not enough memory: you tried to allocate",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Would less at a time, or more room, have helped? By the kind of the error and, of a RuntimeError, its text."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in TEXTS)

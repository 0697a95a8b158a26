// The NCCL functions that Lockstep calls. The library takes a few hundred megabytes, so it is loaded on first use.
#pragma once

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace lockstep {

struct NcclLibrary {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
};

// Throws the reason if NCCL cannot be loaded.
const NcclLibrary& nccl_library();

}  // namespace lockstep
#endif

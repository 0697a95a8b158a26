// NCCL's functions that we call. The library is loaded when it is first asked for: some hundred megabytes, which a process
// that is alone never needs.
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

// Throws why there is none.
const NcclLibrary& nccl_library();

}  // namespace lockstep
#endif

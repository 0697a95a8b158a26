#if __has_include(<nccl.h>)
#include "lockstep/comm/cuda/nccl_library.h"

#include <dlfcn.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

#ifdef LOCKSTEP_CUDA_EMULATED

const NcclLibrary& nccl_library() {
  static const NcclLibrary library{&ncclGetVersion,        &ncclGetUniqueId, &ncclCommInitRankConfig,
                                   &ncclCommGetAsyncError, &ncclCommAbort,   &ncclGroupStart,
                                   &ncclGroupEnd,          &ncclSend,        &ncclRecv,
                                   &ncclGetErrorString,    &ncclGetLastError};
  return library;
}

#else
namespace {

void* load() {
  // Tries the program's library path first, then the path found at build time.
  std::string why;
  for (const std::string& place : {fmt::format("libnccl.so.{}", NCCL_MAJOR), std::string(LOCKSTEP_NCCL)}) {
    if (void* found = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
    why += fmt::format("{}{}", why.empty() ? "" : "; ", ::dlerror());
  }
  fail("NCCL cannot be loaded: {}", why);
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  void* symbol = ::dlsym(library, name);
  check(symbol != nullptr, "NCCL has no {}", name);
  function = reinterpret_cast<Function>(symbol);
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary functions = [] {
    void* library = load();
    NcclLibrary f{};
    find(library, "ncclGetVersion", f.get_version);
    find(library, "ncclGetUniqueId", f.get_unique_id);
    find(library, "ncclCommInitRankConfig", f.init);
    find(library, "ncclCommGetAsyncError", f.async_error);
    find(library, "ncclCommAbort", f.abort);
    find(library, "ncclGroupStart", f.group_start);
    find(library, "ncclGroupEnd", f.group_end);
    find(library, "ncclSend", f.send);
    find(library, "ncclRecv", f.receive);
    find(library, "ncclGetErrorString", f.error_string);
    find(library, "ncclGetLastError", f.last_error);
    return f;
  }();
  return functions;
}

#endif

}  // namespace lockstep
#endif

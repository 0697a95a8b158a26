// Built without CUDA.
#include "lockstep/device/gpu.h"

namespace lockstep {
namespace {

constexpr const char* kWhyNone = "Lockstep was built without CUDA";

}  // namespace

GpuList find_gpus() { return {.gpus = {}, .why_none = kWhyNone}; }
bool connect_gpus(int, int) { return false; }
std::shared_ptr<Stream> make_gpu_stream(int gpu, bool) { fail("cuda:{}: {}", gpu, kWhyNone); }
std::unique_ptr<StreamCapture> make_gpu_capture(bool) { fail("GPU graph: {}", kWhyNone); }
std::shared_ptr<MemorySource> make_gpu_memory(int gpu) { fail("cuda:{}: {}", gpu, kWhyNone); }
std::shared_ptr<MemorySource> make_pinned_memory(int) { fail("pinned memory: {}", kWhyNone); }

}  // namespace lockstep

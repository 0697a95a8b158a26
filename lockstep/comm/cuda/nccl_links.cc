#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/comm/device_links.h"
#include "lockstep/comm/exchanges.h"
#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/device/cuda/cuda_stream.h"

#if __has_include(<nccl.h>)
#include "lockstep/comm/cuda/nccl_library.h"

namespace lockstep {
namespace {

CudaStream& cuda_stream(Stream& stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  check(cuda != nullptr, "NCCL: the stream is not a GPU's");
  return *cuda;
}

// NCCL's calls do not block (ncclConfig_t::blocking). Long calls are polled, so that a lost rank ends the wait.
class NcclLinks final : public DeviceLinks {
 public:
  NcclLinks(int rank, int size, const ncclUniqueId& id, int gpu, const WaitCheck& wait_check)
      : nccl_(nccl_library()), gpu_(gpu) {
    const GpuScope scope(gpu_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      finish("ncclCommInitRankConfig", nccl_.init(&communicator_, size, id, rank, &config), wait_check);
    } catch (...) {
      abort();
      throw;
    }
  }
  // Aborts, because ncclCommDestroy might wait for other ranks. No work is lost: each caller has waited for its work.
  ~NcclLinks() override { abort(); }

  void exchange(std::span<const Piece> sent, std::span<const Piece> received, Stream& stream,
                const WaitCheck& wait_check) override {
    lockstep::check(communicator_ != nullptr, "NCCL: these links were given up");
    const GpuScope scope(gpu_);
    cudaStream_t handle = cuda_stream(stream).handle();
    check_nccl("ncclGroupStart", nccl_.group_start());
    ncclResult_t status = ncclSuccess;
    const auto add = [&](ncclResult_t next) {
      if (status == ncclSuccess) status = next;
    };
    for (const Piece& p : sent) add(nccl_.send(p.data, p.bytes, ncclUint8, p.rank, communicator_, handle));
    for (const Piece& p : received) add(nccl_.receive(p.data, p.bytes, ncclUint8, p.rank, communicator_, handle));
    // A group that was started must be ended, even after an error.
    const ncclResult_t end = nccl_.group_end();
    check_nccl("ncclSend and ncclRecv", status);
    finish("ncclGroupEnd", end, wait_check);
  }

  void check() override {
    ncclResult_t state = ncclSuccess;
    check_nccl("ncclCommGetAsyncError", nccl_.async_error(communicator_, &state));
    check_nccl("an exchange", state);
  }

  void abort() noexcept override {
    const GpuScope scope(gpu_, std::nothrow);  // NCCL restores the GPU that is current now
    if (ncclComm_t communicator = std::exchange(communicator_, nullptr)) nccl_.abort(communicator);
  }

 private:
  void check_nccl(const char* doing, ncclResult_t status) const {
    if (status == ncclSuccess || status == ncclInProgress) return;
    const char* more = nccl_.last_error(communicator_);
    const bool has_more = more != nullptr && *more != '\0';
    throw DeviceLinksError(fmt::format("NCCL on cuda:{}: {}: {}{}{}", gpu_, doing, nccl_.error_string(status),
                                       has_more ? ": " : "", has_more ? more : ""));
  }

  void finish(const char* doing, ncclResult_t status, const WaitCheck& wait_check) const {
    check_nccl(doing, status);
    for (;;) {
      ncclResult_t state = ncclSuccess;
      check_nccl(doing, nccl_.async_error(communicator_, &state));
      check_nccl(doing, state);
      if (state == ncclSuccess) return;
      wait_check();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  const NcclLibrary& nccl_;
  const int gpu_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

NcclInfo find_nccl() {
  try {
    NcclInfo info;
    const ncclResult_t status = nccl_library().get_version(&info.version);
    if (status == ncclSuccess) return info;
    return {.version = 0, .why_none = nccl_library().error_string(status)};
  } catch (const Error& error) {
    return {.version = 0, .why_none = error.what()};
  }
}

std::unique_ptr<DeviceLinks> make_nccl_links(Transport& transport, int channel, Stream& stream,
                                             const WaitCheck& wait_check, const TimeLimit& limit) {
  ncclUniqueId id{};
  if (transport.rank() == 0) {
    const ncclResult_t status = nccl_library().get_unique_id(&id);
    check(status == ncclSuccess, "NCCL: ncclGetUniqueId: {}", nccl_library().error_string(status));
  }
  const auto size = static_cast<std::size_t>(transport.size());
  std::vector<ConstBlock> to(size);
  std::vector<MutableBlock> from(size);
  if (transport.rank() == 0) {
    std::fill(to.begin(), to.end(), ConstBlock{reinterpret_cast<const std::byte*>(&id), sizeof id});
  } else {
    from[0] = {reinterpret_cast<std::byte*>(&id), sizeof id};
  }
  transport.exchange(channel, nullptr, to, from, limit);
  return std::make_unique<NcclLinks>(transport.rank(), transport.size(), id, cuda_stream(stream).gpu(), wait_check);
}

}  // namespace lockstep

#else

namespace lockstep {

NcclInfo find_nccl() { return {.version = 0, .why_none = "Lockstep was built without NCCL"}; }
std::unique_ptr<DeviceLinks> make_nccl_links(Transport&, int, Stream&, const WaitCheck&, const TimeLimit&) {
  fail("Lockstep was built without NCCL");
}

}  // namespace lockstep
#endif

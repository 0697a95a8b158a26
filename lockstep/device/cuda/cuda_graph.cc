// CUDA graphs, captured on streams of their own, so that no other work enters them.
#include <cuda_runtime_api.h>

#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/device/cuda/cuda_stream.h"
#include "lockstep/device/gpu.h"

namespace lockstep {
namespace {

using Streams = std::vector<std::shared_ptr<CudaStream>>;

class CudaGraph final : public StreamGraph {
 public:
  // Takes ownership of the graph.
  CudaGraph(cudaGraph_t graph, Streams streams, std::vector<CudaStream::GraphTime> times)
      : streams_(std::move(streams)), times_(std::move(times)) {
    GpuScope scope(streams_[0]->gpu());
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }
  ~CudaGraph() override {
    GpuScope scope(streams_[0]->gpu(), std::nothrow);
    cudaGraphExecDestroy(executable_);
  }

  std::uint64_t launch(Stream& stream) override {
    auto& on = dynamic_cast<CudaStream&>(stream);
    {
      GpuScope scope(on.gpu());
      check_cuda(cudaGraphLaunch(executable_, on.handle()), "cudaGraphLaunch");
    }
    return on.record_graph(streams_, times_);
  }

 private:
  const Streams streams_;
  const std::vector<CudaStream::GraphTime> times_;
  cudaGraphExec_t executable_ = nullptr;
};

class CudaCapture final : public StreamCapture {
 public:
  explicit CudaCapture(bool timed) : timed_(timed) {}

  ~CudaCapture() override {
    cudaGraph_t graph = nullptr;
    if (!capturing_) return;
    GpuScope scope(streams_[0]->gpu(), std::nothrow);
    if (cudaStreamEndCapture(streams_[0]->handle(), &graph) == cudaSuccess && graph) cudaGraphDestroy(graph);
    cudaGetLastError();
  }

  std::shared_ptr<Stream> add_stream(int gpu) override {
    streams_.push_back(std::make_shared<CudaStream>(gpu, false));
    return streams_.back();
  }

  void begin() override {
    for (const auto& stream : streams_) stream->begin_capture(timed_);
    scope_.emplace(streams_[0]->gpu());
    // Relaxed: other threads keep using other streams and allocating memory.
    check_cuda(cudaStreamBeginCapture(streams_[0]->handle(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    capturing_ = true;
    const std::uint64_t begun = streams_[0]->record(false);
    for (std::size_t i = 1; i < streams_.size(); ++i) streams_[i]->wait(*streams_[0], begun);
  }

  std::shared_ptr<StreamGraph> end() override {
    for (std::size_t i = 1; i < streams_.size(); ++i) streams_[0]->wait(*streams_[i], streams_[i]->record(false));
    cudaGraph_t graph = nullptr;
    capturing_ = false;
    const cudaError_t status = cudaStreamEndCapture(streams_[0]->handle(), &graph);
    scope_.reset();
    check_cuda(status, "cudaStreamEndCapture");
    std::vector<CudaStream::GraphTime> times;
    for (const auto& stream : streams_) {
      for (CudaStream::Event& event : stream->end_capture()) times.push_back({stream.get(), std::move(event)});
    }
    return std::make_shared<CudaGraph>(graph, std::exchange(streams_, {}), std::move(times));
  }

 private:
  const bool timed_;
  Streams streams_;
  bool capturing_ = false;
  // Kernels select their stream's GPU for the calling thread; the scope restores the thread's own GPU.
  std::optional<GpuScope> scope_;
};

}  // namespace

std::unique_ptr<StreamCapture> make_gpu_capture(bool timed) {
  if (environment_integer("LOCKSTEP_CUDA_SYNC", 0, 1).value_or(0) == 1) return nullptr;
  return std::make_unique<CudaCapture>(timed);
}

}  // namespace lockstep

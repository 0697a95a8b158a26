#include "tests/cuda_emulator/graph.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "tests/cuda_emulator/stream.h"

namespace cuda_emulator {

bool Graph::ends_in(const std::set<std::size_t>& last) const {
  std::set<std::size_t> before = last;
  for (std::size_t node = nodes.size(); node-- > 0;) {
    if (!before.contains(node)) return false;
    before.insert(nodes[node].after.begin(), nodes[node].after.end());
  }
  return true;
}

void Graph::run(unsigned seed) const {
  std::mt19937 random(seed);
  std::vector<std::size_t> waiting(nodes.size()), missing(nodes.size());
  std::vector<std::vector<std::size_t>> next(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (std::size_t before : nodes[i].after) next[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const std::size_t node = ready.back();
    ready.pop_back();
    nodes[node].work();
    for (std::size_t after : next[node]) {
      if (--missing[after] == 0) ready.push_back(after);
    }
  }
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

namespace {

// Handles are pointers to these.
Graph* graph_of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
using Executable = std::shared_ptr<const Graph>;
Executable* executable_of(cudaGraphExec_t executable) { return reinterpret_cast<Executable*>(executable); }

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (stream->place()) return set_last_error(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  stream->join({capture, {}});
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  const CapturedPlace* place = stream->place();
  if (!place) return set_last_error(cudaErrorIllegalState);
  if (place->capture->origin != stream) return set_last_error(cudaErrorStreamCaptureUnmatched);
  const std::shared_ptr<Capture> capture = place->capture;
  const bool joined = capture->graph.ends_in(place->after);
  capture->over = true;
  for (Stream* member : capture->streams) member->leave();
  if (capture->invalid) return set_last_error(cudaErrorStreamCaptureInvalidated);
  if (!joined) return set_last_error(cudaErrorStreamCaptureUnjoined);
  *graph = reinterpret_cast<cudaGraph_t>(new Graph(std::move(capture->graph)));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  *status = !stream->place()                    ? cudaStreamCaptureStatusNone
            : stream->place()->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                                : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new Executable(std::make_shared<Graph>(*graph_of(graph))));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (cudaError_t error = device_error(stream->device()); error != cudaSuccess) return set_last_error(error);
  static std::atomic<unsigned> launches{0};
  stream->enqueue([graph = *executable_of(executable), seed = ++launches] { graph->run(seed); });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}

// A launch in progress continues.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable_of(executable);
  return cudaSuccess;
}

}  // extern "C"

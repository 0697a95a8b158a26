#include "lockstep/checkpoint/weights.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/sha256.h"

namespace lockstep {

std::vector<TensorBytes> as_bytes(const StateDict& state) {
  std::vector<TensorBytes> all;
  for (const auto& [name, t] : state) {
    check(t.device().is_host() && t.layout() == Layout::plain, "weights: {} is {}, expected plain host memory", name,
          t.describe());
    all.push_back({name, t.dtype(), t.shape(), {static_cast<const std::byte*>(t.view().data), t.view().bytes()}});
  }
  return all;
}

StateDict as_tensors(const SafetensorsFile& file) {
  StateDict state;
  for (const TensorBytes& t : file.tensors) {
    Tensor tensor = Tensor::host(t.shape, t.dtype);
    if (!t.bytes.empty()) std::memcpy(tensor.view().data, t.bytes.data(), t.bytes.size());
    state.emplace_back(t.name, std::move(tensor));
  }
  return state;
}

void save_weights(const std::filesystem::path& path, const Module& module) {
  StateDict state = state_dict(module);
  write_safetensors(path, as_bytes(state), {{"format", "pt"}});
}

void load_weights(const std::filesystem::path& path, Module& module) {
  StateDict state = as_tensors(read_safetensors(path));
  try {
    load_state_dict(module, state);
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

std::string weights_sha256(const Module& module) {
  StateDict state = state_dict(module);
  std::ranges::sort(state, {}, &StateDict::value_type::first);
  Sha256 hash;
  for (const TensorBytes& t : as_bytes(state)) {
    if (is_floating(t.dtype)) hash.update(t.bytes);
  }
  return hash.hex();
}

}  // namespace lockstep

// Files of tensors: base of lockstep.save() and load().
#include <string>
#include <utility>

#include "bindings.h"
#include "lockstep/device/file_memory.h"

namespace lockstep::python {
namespace {

StateDict in_host_memory(const StateDict& tensors) {
  StateDict host;
  for (const auto& [name, x] : tensors) host.emplace_back(name, x.to_host());
  return host;
}

using Loaded = std::pair<StateDict, SafetensorsMetadata>;

Loaded loaded(const SafetensorsFile& file, const std::string& origin) {
  for (const ForeignTensor& t : file.foreign) {
    check(t.dtype == "BOOL" || t.dtype.starts_with('I') || t.dtype.starts_with("U"),
          "load: {} has {} {}, which no tensor can hold", origin, t.name, t.describe());
  }
  return {as_tensors(file), file.metadata};
}

}  // namespace

void add_save(py::module_& package) {
  py::module_ m = package.def_submodule("internal");
  // Used by archives that Python reads.
  m.def("memory_for_file", &memory_for_file, "file_bytes"_a);
  m.def(
      "write_safetensors",
      [](const std::string& path, const StateDict& tensors, const SafetensorsMetadata& metadata) {
        const StateDict host = in_host_memory(tensors);
        write_safetensors(path, as_bytes(host), metadata);
      },
      "path"_a, "tensors"_a, "metadata"_a, released());
  m.def(
      "safetensors_bytes",
      [](const StateDict& tensors, const SafetensorsMetadata& metadata) {
        std::string all;
        {
          const WithoutLock writing;
          const StateDict host = in_host_memory(tensors);
          write_safetensors(
              [&](std::span<const std::byte> bytes) {
                all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
              },
              as_bytes(host), metadata);
        }
        return py::bytes(all);
      },
      "tensors"_a, "metadata"_a);
  m.def(
      "read_safetensors", [](const std::string& path) { return loaded(read_safetensors(path), path); }, "path"_a,
      released());
  m.def(
      "parse_safetensors",
      [](std::string bytes, const std::string& origin) {
        return loaded(parse_safetensors(std::move(bytes), origin), origin);
      },
      "bytes"_a, "origin"_a, released());
  package.def(
      "save_weights", [](const std::string& path, const Module& module) { save_weights(path, module); }, "path"_a,
      "module"_a, released(), "Writes a safetensors file that the same model in PyTorch loads.");
  package.def(
      "load_weights", [](const std::string& path, Module& module) { load_weights(path, module); }, "path"_a, "module"_a,
      released(), "Loads a safetensors file, a checkpoint, or the newest checkpoint of a run's folder.");
}

}  // namespace lockstep::python

#include "lockstep/nn/layer_error.h"

#include <typeinfo>

#include "lockstep/nn/module.h"
#include "lockstep/nn/module_tree.h"

namespace lockstep {

std::string path_of(const Module& module) {
  std::string path;
  const Module* below = &module;
  // ModuleTree has no const version.
  while (Module* const parent = ModuleTree(const_cast<Module&>(*below)).parent()) {  // NOLINT
    for (const ModuleTree::Child& child : ModuleTree(*parent).children()) {
      if (child.module != below || child.name.empty()) continue;
      path = path.empty() ? child.name : child.name + "." + path;
      break;
    }
    below = parent;
  }
  return path;
}

void rethrow_in(const Module& module) {
  try {
    throw;
  } catch (const Error& e) {
    // Only a plain Error comes from this layer: errors of tasks and ranks do not, and a LayerError names its own layer.
    const std::string path = typeid(e) == typeid(Error) ? path_of(module) : "";
    if (path.empty()) throw;
    throw LayerError(path + ": " + e.what());
  }
}

}  // namespace lockstep

#include "apps/lockstep/fine_tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/lockstep/options/usage_error.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/linear.h"

namespace lockstep::app {
namespace {

bool is_below(std::string_view name, std::string_view path) {
  return name.starts_with(path) && (name.size() == path.size() || name[path.size()] == '.');
}

// Returns the parts of the names of parameters before the first dot.
std::vector<std::string> parts_of(const Module& net) {
  std::vector<std::string> parts;
  for (const auto& [name, parameter] : net.named_parameters()) {
    std::string first = name.substr(0, name.find('.'));
    if (parts.empty() || parts.back() != first) parts.push_back(std::move(first));
  }
  return parts;
}

}  // namespace

std::string head_of(Module& net) {
  std::string path;
  for (const auto& [name, module] : net.named_modules()) {
    if (dynamic_cast<const Linear*>(module) != nullptr) path = name;
  }
  check(!path.empty(), "the model has no Linear layer at its end");
  return path;
}

std::string load_with_new_head(const std::string& path, Module& net) {
  std::string why;
  try {
    load_weights(path, net);
    return "";
  } catch (const Error& error) {
    why = error.what();
  }
  const std::string head = head_of(net);
  UnmatchedEntries unmatched;
  try {
    unmatched = load_matching_weights(path, net);
  } catch (const Error&) {
    fail("{}", why);
  }
  const bool only_head = std::ranges::all_of(unmatched.different, [&](const std::string& entry) {
    return is_below(std::string_view(entry).substr(0, entry.find(' ')), head);
  });
  if (unmatched.different.empty() || !only_head || !unmatched.missing.empty() || !unmatched.unexpected.empty()) {
    fail("{}", why);
  }
  return fmt::format("--init-from {}: the last layer starts anew: {}", path, fmt::join(unmatched.different, "; "));
}

void freeze_parts(Module& net, const std::vector<std::string>& names) {
  const std::string head = head_of(net);
  for (const std::string& path : names) {
    bool found = false;
    for (const auto& [name, parameter] : net.named_parameters()) {
      if (!(path == "backbone" ? !is_below(name, head) : is_below(name, path))) continue;
      parameter.set_trainable(false);
      found = true;
    }
    if (!found) {
      throw UsageError(fmt::format("--freeze {}: the model has no such parameters: expected backbone, or one of {}",
                                   path, fmt::join(parts_of(net), ", ")));
    }
  }
  if (std::ranges::none_of(net.parameters(), &Parameter::trainable)) {
    throw UsageError(fmt::format("--freeze {}: nothing is left to train", fmt::join(names, ",")));
  }
  for (const auto& [name, module] : net.named_modules()) {
    const std::vector<Parameter> parameters = module->parameters();
    if (!parameters.empty() && std::ranges::none_of(parameters, &Parameter::trainable)) module->eval();
  }
}

ParameterGroups groups_with_head(Module& net, double head_lr) {
  const std::string head = head_of(net);
  std::vector<Parameter> body, last;
  for (const auto& [name, parameter] : net.named_parameters()) {
    std::vector<Parameter>& mine = is_below(name, head) ? last : body;
    if (std::ranges::find(mine, parameter) == mine.end()) mine.push_back(parameter);
  }
  return ParameterGroups{ParameterGroup{.parameters = body}, ParameterGroup{.parameters = last, .lr = head_lr}};
}

}  // namespace lockstep::app

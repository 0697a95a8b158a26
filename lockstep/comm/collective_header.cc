#include "lockstep/comm/collective_header.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace lockstep {
namespace {

static_assert(std::has_unique_object_representations_v<CollectiveHeader> && sizeof(CollectiveHeader) == 120,
              "compared and sent as bytes: no padding");

constexpr std::string_view name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::send: return "send";
    case CollectiveKind::receive: return "receive";
    case CollectiveKind::barrier: return "barrier";
    case CollectiveKind::tree_reduce: return "all-reduce";
    case CollectiveKind::make_tree_reducer: return "creation of a tree reducer";
    case CollectiveKind::subgroup: return "creation of a subgroup";
  }
  return "unknown operation";
}

constexpr std::string_view name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
  }
  return "?";
}

bool moves_data(CollectiveKind kind) { return kind < CollectiveKind::barrier || kind == CollectiveKind::tree_reduce; }

std::string_view label_of(const CollectiveHeader& header) {
  return {header.label, ::strnlen(header.label, sizeof header.label)};
}

}  // namespace

void CollectiveHeader::set_label(std::string_view text) {
  std::memset(label, 0, sizeof label);
  text.copy(label, std::min(text.size(), sizeof label));
}

bool operator==(const CollectiveHeader& a, const CollectiveHeader& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::string describe(const CollectiveHeader& header) {
  std::string text(name(header.kind));
  if (header.kind == CollectiveKind::send) text += fmt::format(" to rank {}", header.root);
  if (header.kind == CollectiveKind::receive) text += fmt::format(" from rank {}", header.root);
  if (header.label[0] != '\0') return fmt::format("{} of {}", text, label_of(header));
  if (!moves_data(header.kind)) return text;
  return fmt::format("{} of {} {}", text, header.count, lockstep::name(header.dtype));
}

std::string describe_fully(const CollectiveHeader& header) {
  std::string text(name(header.kind));
  if (header.kind == CollectiveKind::all_reduce) text += fmt::format(" ({})", name(header.op));
  if (header.kind == CollectiveKind::tree_reduce) text += " (tree)";
  if (moves_data(header.kind) || header.kind == CollectiveKind::make_tree_reducer) {
    text += fmt::format(" of {} {}", header.count, lockstep::name(header.dtype));
  }
  if (header.kind == CollectiveKind::subgroup) text += fmt::format(" of {} ranks", header.count);
  if (header.kind == CollectiveKind::broadcast) text += fmt::format(" from rank {}", header.root);
  if (header.label[0] != '\0') text += fmt::format(" \"{}\"", label_of(header));
  return text;
}

}  // namespace lockstep

#include "lockstep/comm/mesh_group.h"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/device_reducer.h"
#include "lockstep/comm/tree_reducer.h"

namespace lockstep {
namespace {

CollectiveHeader header_of(CollectiveKind kind, const CommBuffer& data, const CollectiveOptions& options) {
  CollectiveHeader header{.kind = kind, .dtype = data.dtype, .count = data.count};
  header.set_label(options.label);
  return header;
}

// `whole` is made of one `part` for each rank.
void check_parts(std::string_view operation, std::string_view whole_name, const CommBuffer& whole,
                 std::string_view part_name, const CommBuffer& part, int ranks) {
  check(whole.dtype == part.dtype, "{}: {} is {}, {} is {}", operation, part_name, name(part.dtype), whole_name,
        name(whole.dtype));
  check(whole.count == part.count * static_cast<std::size_t>(ranks),
        "{}: {} has {} elements, expected {} ({} for each of {} ranks)", operation, whole_name, whole.count,
        part.count * static_cast<std::size_t>(ranks), part.count, ranks);
}

}  // namespace

MeshGroup::MeshGroup(std::unique_ptr<Mesh> mesh, std::string backend, const GroupTimeouts& timeouts,
                     FailureReporter report)
    : mesh_(std::move(mesh)), backend_(std::move(backend)), timeouts_(timeouts), report_(std::move(report)) {
  for (auto& lane : lanes_) lane = std::make_shared<OperationQueue>(mesh_->may_spin());
  kin_->meshes.push_back(mesh_.get());
}

MeshGroup::~MeshGroup() {
  const auto idle = [](const auto& queue) { return queue->idle(); };
  const bool unfinished =
      !std::all_of(lanes_.begin(), lanes_.end(), idle) ||
      std::any_of(streams_.begin(), streams_.end(), [&](const auto& s) { return !idle(s.second); });
  if (unfinished) {
    mesh_->fail(
        {rank(), fmt::format("rank {} gave up: it closed its group while operations were under way", rank())});
  }
  for (auto& [key, stream] : streams_) stream->close();
  for (auto& lane : lanes_) lane->close();
  std::lock_guard lock(kin_->mutex);
  std::erase(kin_->meshes, mesh_.get());
}

Work MeshGroup::all_reduce(CommBuffer data, ReduceOp op, CollectiveOptions options) {
  auto header = header_of(CollectiveKind::all_reduce, data, options);
  header.op = op;
  return submit(header, options, [this, data](int lane, const CollectiveHeader& h, const TimeLimit& limit) {
    lockstep::all_reduce(*mesh_, lane, h, data, limit);
  });
}

Work MeshGroup::broadcast(CommBuffer data, int root, CollectiveOptions options) {
  check_root("broadcast", root);
  auto header = header_of(CollectiveKind::broadcast, data, options);
  header.root = root;
  return submit(header, options, [this, data](int lane, const CollectiveHeader& h, const TimeLimit& limit) {
    lockstep::broadcast(*mesh_, lane, h, data, limit);
  });
}

Work MeshGroup::all_gather(CommBuffer in, CommBuffer out, CollectiveOptions options) {
  check_parts("all-gather", "out", out, "in", in, size());
  return submit(header_of(CollectiveKind::all_gather, in, options), options,
                [this, in, out](int lane, const CollectiveHeader& h, const TimeLimit& limit) {
                  lockstep::all_gather(*mesh_, lane, h, in, out, limit);
                });
}

Work MeshGroup::barrier(CollectiveOptions options) {
  return submit(header_of(CollectiveKind::barrier, {}, options), options,
                [this](int lane, const CollectiveHeader& h, const TimeLimit& limit) {
                  lockstep::barrier(*mesh_, lane, h, limit);
                });
}

Work MeshGroup::send(CommBuffer data, int destination, int tag, CollectiveOptions options) {
  check_peer("send", destination, tag);
  auto header = header_of(CollectiveKind::send, data, options);
  header.root = destination;
  header.detail = static_cast<std::uint64_t>(tag);
  return submit_to(stream(destination, tag, true), 0, header, options,
                   [this, data, tag](int, const CollectiveHeader& h, const TimeLimit& limit) {
                     const auto* begin = static_cast<const std::byte*>(data.data);
                     Message message{h, {begin, begin + data.count * item_size(data.dtype)}};
                     mesh_->send(h.root, tag, std::move(message), limit);
                   });
}

Work MeshGroup::receive(CommBuffer data, int source, int tag, CollectiveOptions options) {
  check_peer("receive", source, tag);
  auto header = header_of(CollectiveKind::receive, data, options);
  header.root = source;
  header.detail = static_cast<std::uint64_t>(tag);
  return submit_to(stream(source, tag, false), 0, header, options,
                   [this, data, tag](int, const CollectiveHeader& h, const TimeLimit& limit) {
                     const Message message = mesh_->receive(h.root, tag, limit);
                     if (message.header.dtype != h.dtype || message.header.count != h.count) {
                       throw_failure(disagreement(h.root, message.header, rank(), h));
                     }
                     const std::size_t expected = h.count * item_size(h.dtype);
                     if (message.bytes.size() != expected) {
                       throw_failure({-1, fmt::format("rank {} sent {} bytes, expected {}", h.root,
                                                      message.bytes.size(), expected)});
                     }
                     if (!message.bytes.empty()) std::memcpy(data.data, message.bytes.data(), message.bytes.size());
                   });
}

std::shared_ptr<ProcessGroup> MeshGroup::subgroup(std::vector<int> ranks) {
  check(!ranks.empty() && std::is_sorted(ranks.begin(), ranks.end(), std::less_equal()) && ranks.front() >= 0 &&
            ranks.back() < size(),
        "subgroup: expected at least one rank, ascending, from 0 to {}", size() - 1);
  CollectiveHeader header{.kind = CollectiveKind::subgroup, .count = ranks.size()};
  header.detail = hash_of({.segments = {}, .positions = {ranks}});
  const std::string name = fmt::format("subgroup {}", subgroups_made_++);
  std::unique_ptr<Mesh> mesh;
  submit(header, {.wait = true}, [&](int lane, const CollectiveHeader& h, const TimeLimit& limit) {
    lockstep::barrier(*mesh_, lane, h, limit);
    if (std::binary_search(ranks.begin(), ranks.end(), rank())) mesh = mesh_->split(ranks, name, timeouts_.silence);
  });
  if (!mesh) return nullptr;
  // The launcher does not know the numbers in a part of the ranks.
  const bool same_ranks = mesh->size() == size();
  auto group = std::make_shared<MeshGroup>(std::move(mesh), backend_, timeouts_, same_ranks ? report_ : nullptr);
  if (same_ranks) {
    group->kin_ = kin_;
    std::lock_guard lock(kin_->mutex);
    kin_->meshes.push_back(group->mesh_.get());
  }
  std::lock_guard lock(mutex_);
  subgroups_.push_back(group);
  return group;
}

// Gives a MeshTreeReducer its place in the group's order, and errors their names.
class MeshGroup::GroupTreeReducer final : public TreeReducer {
 public:
  GroupTreeReducer(MeshGroup& group, CommChannel channel, const CollectiveHeader& header,
                   std::unique_ptr<MeshTreeReducer> reducer)
      : group_(group), channel_(channel), header_(header), reducer_(std::move(reducer)) {}

  CommBuffer contribution(std::size_t k) override { return reducer_->contribution(k); }
  void set_present(std::size_t k, std::size_t segment, bool present) override {
    reducer_->set_present(k, segment, present);
  }
  std::span<const float> result() const override { return reducer_->result(); }
  bool result_present(std::size_t segment) const override { return reducer_->result_present(segment); }

  void reduce(const CollectiveOptions& options) override {
    header_.set_label(options.label);
    CollectiveOptions here = options;
    here.channel = channel_;
    here.wait = true;
    group_.submit(header_, here,
                  [&](int, const CollectiveHeader& h, const TimeLimit& limit) { reducer_->reduce(h, limit); });
  }

 private:
  MeshGroup& group_;
  CommChannel channel_;
  CollectiveHeader header_;
  std::unique_ptr<MeshTreeReducer> reducer_;
};

std::unique_ptr<TreeReducer> MeshGroup::make_tree_reducer(TreeLayout layout, CommChannel channel,
                                                          std::shared_ptr<SummingDevice> device) {
  check_layout(layout, size());
  CollectiveHeader header{
      .kind = CollectiveKind::make_tree_reducer, .dtype = layout.dtype, .count = elements_of(layout)};
  header.detail = hash_of(layout) + (device ? 1 : 0);
  std::unique_ptr<MeshTreeReducer> reducer;
  submit(header, {.channel = channel, .wait = true}, [&](int lane, const CollectiveHeader& h, const TimeLimit& limit) {
    lockstep::barrier(*mesh_, lane, h, limit);
    if (!device) {
      reducer = make_mesh_tree_reducer(*mesh_, lane, layout, limit);
      return;
    }
    if (!device_links_) device_links_ = link_gpus(*mesh_, lane, device->stream(), TimeLimit(timeouts_.silence));
    reducer = make_device_reducer(*mesh_, lane, layout, device, device_links_, timeouts_.silence);
  });
  header.kind = CollectiveKind::tree_reduce;
  return std::make_unique<GroupTreeReducer>(*this, channel, header, std::move(reducer));
}

void MeshGroup::abort(const std::string& reason) {
  mesh_->fail({rank(), fmt::format("rank {} gave up: {}", rank(), reason)});
  std::lock_guard lock(mutex_);
  for (const auto& subgroup : subgroups_) {
    if (auto group = subgroup.lock()) group->abort(reason);
  }
}

Work MeshGroup::submit(const CollectiveHeader& header, const CollectiveOptions& options, Run run) {
  const int lane = static_cast<int>(options.channel);
  return submit_to(*lanes_[static_cast<std::size_t>(lane)], lane, header, options, std::move(run));
}

Work MeshGroup::submit_to(OperationQueue& queue, int lane, const CollectiveHeader& header,
                          const CollectiveOptions& options, Run run) {
  const std::chrono::milliseconds timeout = options.timeout.count() == 0 ? timeouts_.progress : options.timeout;
  auto guarded = [this, lane, header, timeout, run = std::move(run)] { run_guarded(lane, header, timeout, run); };
  if (!options.wait) return queue.push(std::move(guarded));
  queue.run(std::move(guarded));
  return {};
}

void MeshGroup::run_guarded(int lane, const CollectiveHeader& header, std::chrono::milliseconds timeout,
                            const Run& run) {
  {
    std::lock_guard lock(mutex_);
    if (first_error_) throw CommError(*first_error_);
  }
  try {
    if (auto failure = mesh_->failure()) throw_failure(*failure);
    run(lane, header, TimeLimit(timeout));
  } catch (const CommError& error) {
    throw failed({error.lost_rank(), error.what()}, header);
  } catch (const std::exception& error) {
    throw failed({rank(), fmt::format("rank {} gave up: {}", rank(), error.what())}, header);
  }
}

void MeshGroup::fail_kin(const RankFailure& failure) {
  std::lock_guard lock(kin_->mutex);
  for (Mesh* mesh : kin_->meshes) {
    if (mesh != mesh_.get()) mesh->fail(failure);
  }
}

CommError MeshGroup::failed(const RankFailure& own, const CollectiveHeader& header) {
  mesh_->fail(own);
  // A rank that waited in vain to make a group with another one may have been told meanwhile which one is gone.
  const RankFailure failure = mesh_->failure().value_or(own);
  fail_kin(failure);
  std::string text = failure.reason;
  if (failure.culprit >= 0) text += (text.back() == ')' ? " during " : "; during ") + describe(header);
  CommError error(text, failure.culprit);
  {
    std::lock_guard lock(mutex_);
    if (first_error_) return error;
    first_error_ = error;
  }
  if (report_) report_(failure);
  return error;
}

OperationQueue& MeshGroup::stream(int peer, int tag, bool sending) {
  std::lock_guard lock(mutex_);
  auto& stream = streams_[{peer, tag, sending}];
  if (!stream) stream = std::make_shared<OperationQueue>(false);
  return *stream;
}

void MeshGroup::check_root(std::string_view operation, int root) const {
  check(root >= 0 && root < size(), "{}: root {}, expected a rank from 0 to {}", operation, root, size() - 1);
}

void MeshGroup::check_peer(std::string_view operation, int peer, int tag) const {
  check(tag >= 0, "{}: tag {}, expected none below 0", operation, tag);
  check(peer >= 0 && peer < size() && peer != rank(), "{}: rank {}, expected another one than {}, from 0 to {}",
        operation, peer, rank(), size() - 1);
}

}  // namespace lockstep

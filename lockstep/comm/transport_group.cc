#include "lockstep/comm/transport_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/device_reducer.h"
#include "lockstep/comm/tree_reducer.h"
#include "lockstep/net/comm_error.h"

namespace lockstep {
namespace {

CollectiveHeader header_of(CollectiveKind kind, const CommBuffer& data, const CollectiveOptions& options) {
  CollectiveHeader header{.kind = kind, .dtype = data.dtype, .count = data.count};
  header.set_label(options.label);
  return header;
}

// Checks that `whole` consists of one `part` for each rank.
void check_parts(std::string_view operation, std::string_view whole_name, const CommBuffer& whole,
                 std::string_view part_name, const CommBuffer& part, int ranks) {
  check(whole.dtype == part.dtype, "{}: {} is {}, {} is {}, expected one type", operation, part_name, name(part.dtype),
        whole_name, name(whole.dtype));
  check(whole.count == part.count * static_cast<std::size_t>(ranks),
        "{}: {} has {} elements, expected {} ({} for each of {} ranks)", operation, whole_name, whole.count,
        part.count * static_cast<std::size_t>(ranks), part.count, ranks);
}

}  // namespace

TransportGroup::TransportGroup(std::unique_ptr<Transport> transport, std::string backend, const GroupTimeouts& timeouts,
                               FailureReporter report, std::shared_ptr<LinkCounters> counters)
    : counters_(counters ? std::move(counters) : std::make_shared<LinkCounters>(transport->size())),
      transport_(counting_transport(std::move(transport), counters_)), backend_(std::move(backend)),
      timeouts_(timeouts), report_(std::move(report)) {
  for (auto& channel : channels_) channel = std::make_shared<OperationQueue>(transport_->may_spin());
  congruent_->transports.push_back(transport_.get());
}

TransportGroup::~TransportGroup() {
  const auto idle = [](const auto& queue) { return queue->idle(); };
  const bool unfinished = !std::all_of(channels_.begin(), channels_.end(), idle) ||
                          std::any_of(streams_.begin(), streams_.end(), [&](const auto& s) { return !idle(s.second); });
  if (unfinished) {
    transport_->fail(
        {rank(), fmt::format("rank {} gave up: it closed its group while operations were under way", rank())});
  }
  for (auto& [key, stream] : streams_) stream->close();
  for (auto& channel : channels_) channel->close();
  std::lock_guard lock(congruent_->mutex);
  std::erase(congruent_->transports, transport_.get());
}

Work TransportGroup::all_reduce(CommBuffer data, ReduceOp op, CollectiveOptions options) {
  auto header = header_of(CollectiveKind::all_reduce, data, options);
  header.op = op;
  return submit(header, options, [this, data](int channel, const CollectiveHeader& h, const TimeLimit& limit) {
    lockstep::all_reduce(*transport_, channel, h, data, limit);
  });
}

Work TransportGroup::broadcast(CommBuffer data, int root, CollectiveOptions options) {
  check_root("broadcast", root);
  auto header = header_of(CollectiveKind::broadcast, data, options);
  header.root = root;
  return submit(header, options, [this, data](int channel, const CollectiveHeader& h, const TimeLimit& limit) {
    lockstep::broadcast(*transport_, channel, h, data, limit);
  });
}

Work TransportGroup::all_gather(CommBuffer in, CommBuffer out, CollectiveOptions options) {
  check_parts("all-gather", "out", out, "in", in, size());
  return submit(header_of(CollectiveKind::all_gather, in, options), options,
                [this, in, out](int channel, const CollectiveHeader& h, const TimeLimit& limit) {
                  lockstep::all_gather(*transport_, channel, h, in, out, limit);
                });
}

Work TransportGroup::barrier(CollectiveOptions options) {
  return submit(header_of(CollectiveKind::barrier, {}, options), options,
                [this](int channel, const CollectiveHeader& h, const TimeLimit& limit) {
                  lockstep::barrier(*transport_, channel, h, limit);
                });
}

Work TransportGroup::send(CommBuffer data, int destination, int tag, CollectiveOptions options) {
  check_peer("send", destination, tag);
  auto header = header_of(CollectiveKind::send, data, options);
  header.root = destination;
  header.detail = static_cast<std::uint64_t>(tag);
  const std::shared_ptr<OperationQueue> queue = stream(destination, tag, true);
  return submit_to(*queue, 0, header, options,
                   [this, data, tag](int, const CollectiveHeader& h, const TimeLimit& limit) {
                     const auto* begin = static_cast<const std::byte*>(data.data);
                     Message message{h, {begin, begin + data.count * item_size(data.dtype)}};
                     transport_->send(h.root, tag, std::move(message), limit);
                   });
}

Work TransportGroup::receive(CommBuffer data, int source, int tag, CollectiveOptions options) {
  check_peer("receive", source, tag);
  auto header = header_of(CollectiveKind::receive, data, options);
  header.root = source;
  header.detail = static_cast<std::uint64_t>(tag);
  const std::shared_ptr<OperationQueue> queue = stream(source, tag, false);
  return submit_to(
      *queue, 0, header, options, [this, data, tag](int, const CollectiveHeader& h, const TimeLimit& limit) {
        const Message message = transport_->receive(h.root, tag, limit);
        if (message.header.dtype != h.dtype || message.header.count != h.count) {
          throw_rank_failure(disagreement(h.root, message.header, rank(), h));
        }
        const std::size_t expected = h.count * item_size(h.dtype);
        if (message.bytes.size() != expected) {
          throw_rank_failure(
              {-1, fmt::format("rank {} sent {} bytes, expected {}", h.root, message.bytes.size(), expected)});
        }
        if (!message.bytes.empty()) std::memcpy(data.data, message.bytes.data(), message.bytes.size());
      });
}

Work TransportGroup::end_messages() {
  CollectiveHeader header{.kind = CollectiveKind::send};
  header.set_label("closing the group");
  const std::shared_ptr<OperationQueue> queue = stream(rank(), kEndOfMessages, true);
  return submit_to(*queue, 0, header, {}, [this](int, const CollectiveHeader& h, const TimeLimit& limit) {
    while (is_sending()) {
      if (auto failure = transport_->failure()) throw_rank_failure(*failure);
      if (limit.over()) throw_rank_failure({rank(), fmt::format("rank {} closes the group while it sends", rank())});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      try {
        transport_->send(r, kEndOfMessages, {h, {}}, limit);
      } catch (const CommError&) {
        // A rank that has closed waits for no message. The barriers of begin_closing() notice a rank that is lost.
      }
    }
  });
}

bool TransportGroup::is_sending() const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(streams_, [](const auto& stream) {
    const auto& [peer, tag, sending] = stream.first;
    return sending && tag != kEndOfMessages && !stream.second->idle();
  });
}

std::vector<Work> begin_closing(ProcessGroup& group) {
  std::vector<Work> works;
  if (group.size() == 1) return works;
  if (auto* transports = dynamic_cast<TransportGroup*>(&group)) works.push_back(transports->end_messages());
  for (const CommChannel channel : {CommChannel::urgent, CommChannel::bulk}) {
    works.push_back(group.barrier({.label = "closing the group", .channel = channel}));
  }
  return works;
}

std::shared_ptr<ProcessGroup> TransportGroup::subgroup(std::vector<int> ranks) {
  check(!ranks.empty() && std::is_sorted(ranks.begin(), ranks.end(), std::less_equal()) && ranks.front() >= 0 &&
            ranks.back() < size(),
        "subgroup: expected at least one rank, ascending, from 0 to {}", size() - 1);
  CollectiveHeader header{.kind = CollectiveKind::subgroup, .count = ranks.size()};
  header.detail = hash_of({.segments = {}, .positions = {ranks}});
  const std::string name = fmt::format("subgroup {}", subgroups_made_++);
  std::unique_ptr<Transport> transport;
  submit(header, {.wait = true}, [&](int channel, const CollectiveHeader& h, const TimeLimit& limit) {
    lockstep::barrier(*transport_, channel, h, limit);
    if (std::binary_search(ranks.begin(), ranks.end(), rank()))
      transport = transport_->subgroup(ranks, name, timeouts_.silence);
  });
  if (!transport) return nullptr;
  // Reports only for groups of the same ranks, because the launcher does not know the numbers of a smaller group.
  const bool same_ranks = transport->size() == size();
  auto group = std::make_shared<TransportGroup>(std::move(transport), backend_, timeouts_,
                                                same_ranks ? report_ : nullptr, same_ranks ? counters_ : nullptr);
  if (same_ranks) {
    group->congruent_ = congruent_;
    std::lock_guard lock(congruent_->mutex);
    congruent_->transports.push_back(group->transport_.get());
  }
  std::lock_guard lock(mutex_);
  subgroups_.push_back(group);
  return group;
}

std::unique_ptr<TreeReducer> TransportGroup::make_tree_reducer(TreeLayout layout, CommChannel channel,
                                                               std::shared_ptr<SummingDevice> device) {
  CollectiveHeader header{.kind = CollectiveKind::make_tree_reducer, .dtype = layout.dtype};
  header.detail = hash_of(layout) + (device ? 1 : 0);
  IndexedLayout indexed(std::move(layout), size());
  header.count = indexed.elements();
  CollectiveHeader reduce_header = header;
  reduce_header.kind = CollectiveKind::tree_reduce;
  CollectiveRunner run = [this, channel, reduce_header](CollectiveOptions options, const auto& collective) mutable {
    reduce_header.set_label(options.label);
    options.channel = channel;
    options.wait = true;
    submit(reduce_header, options,
           [&](int, const CollectiveHeader& h, const TimeLimit& limit) { collective(h, limit); });
  };
  std::unique_ptr<TreeReducer> reducer;
  submit(header, {.channel = channel, .wait = true},
         [&](int channel, const CollectiveHeader& h, const TimeLimit& limit) {
           lockstep::barrier(*transport_, channel, h, limit);
           if (!device) {
             reducer = lockstep::make_tree_reducer(*transport_, channel, std::move(indexed), std::move(run), limit);
             return;
           }
           if (!device_links_)
             device_links_ = link_gpus(*transport_, channel, device->stream(), TimeLimit(timeouts_.silence));
           reducer = make_device_reducer(*transport_, channel, std::move(indexed), std::move(run), device,
                                         device_links_, timeouts_.silence);
         });
  return reducer;
}

void TransportGroup::abort(const std::string& reason) {
  transport_->fail({rank(), fmt::format("rank {} gave up: {}", rank(), reason)});
  std::lock_guard lock(mutex_);
  for (const auto& subgroup : subgroups_) {
    if (auto group = subgroup.lock()) group->abort(reason);
  }
}

Work TransportGroup::submit(const CollectiveHeader& header, const CollectiveOptions& options, Run run) {
  const int channel = static_cast<int>(options.channel);
  return submit_to(*channels_[static_cast<std::size_t>(channel)], channel, header, options, std::move(run));
}

Work TransportGroup::submit_to(OperationQueue& queue, int channel, const CollectiveHeader& header,
                               const CollectiveOptions& options, Run run) {
  const std::chrono::milliseconds timeout = options.timeout.count() == 0 ? timeouts_.progress : options.timeout;
  auto guarded = [this, channel, header, timeout, run = std::move(run)] { run_guarded(channel, header, timeout, run); };
  if (!options.wait) return queue.push(std::move(guarded));
  queue.run(std::move(guarded));
  return {};
}

void TransportGroup::run_guarded(int channel, const CollectiveHeader& header, std::chrono::milliseconds timeout,
                                 const Run& run) {
  {
    std::lock_guard lock(mutex_);
    if (first_error_) throw CommError(*first_error_);
  }
  try {
    if (auto failure = transport_->failure()) throw_rank_failure(*failure);
    run(channel, header, TimeLimit(timeout));
  } catch (const CommError& error) {
    throw failed({error.lost_rank(), error.what()}, header);
  } catch (const std::exception& error) {
    throw failed({rank(), fmt::format("rank {} gave up: {}", rank(), error.what())}, header);
  }
}

LinkTraffic link_traffic(const ProcessGroup& group) {
  const auto* const counted = dynamic_cast<const TransportGroup*>(&group);
  return counted && counted->size() > 1 ? counted->traffic() : LinkTraffic{};
}

void TransportGroup::fail_congruent(const RankFailure& failure) {
  std::lock_guard lock(congruent_->mutex);
  for (Transport* transport : congruent_->transports) {
    if (transport != transport_.get()) transport->fail(failure);
  }
}

CommError TransportGroup::failed(const RankFailure& own, const CollectiveHeader& header) {
  transport_->fail(own);
  // Prefers the first failure that the ranks know: in a subgroup's rendezvous, another rank may report the lost rank.
  const RankFailure failure = transport_->failure().value_or(own);
  fail_congruent(failure);
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

std::shared_ptr<OperationQueue> TransportGroup::stream(int peer, int tag, bool sending) {
  // Destroyed after the lock is released, because a queue's destructor joins its thread.
  std::vector<std::shared_ptr<OperationQueue>> idle;
  std::lock_guard lock(mutex_);
  const auto found = streams_.find({peer, tag, sending});
  if (found != streams_.end()) return found->second;
  if (streams_.size() >= kManyStreams) {
    std::erase_if(streams_, [&](auto& s) {
      // Only the map refers to this queue, so no thread is about to push to it.
      if (s.second.use_count() != 1 || !s.second->idle()) return false;
      idle.push_back(std::move(s.second));
      return true;
    });
  }
  return streams_[{peer, tag, sending}] = std::make_shared<OperationQueue>(false);
}

void TransportGroup::check_root(std::string_view operation, int root) const {
  check(root >= 0 && root < size(), "{}: root {}, expected a rank from 0 to {}", operation, root, size() - 1);
}

void TransportGroup::check_peer(std::string_view operation, int peer, int tag) const {
  check(tag >= 0, "{}: tag {}, expected at least 0", operation, tag);
  check(peer >= 0 && peer < size() && peer != rank(), "{}: rank {}, expected a rank from 0 to {} other than {}",
        operation, peer, size() - 1, rank());
}

}  // namespace lockstep

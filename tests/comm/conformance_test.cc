// The behavior of every back end, with every number of ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "groups.h"
#include "lockstep/base/random.h"
#include "lockstep/base/tree.h"

namespace lockstep {
namespace {

using testing::buffer;
using testing::make_groups;
using testing::on_all_ranks;

class Conformance : public ::testing::TestWithParam<testing::ConformanceCase> {
 protected:
  int ranks() const { return GetParam().ranks; }
  std::size_t n() const { return static_cast<std::size_t>(ranks()); }
  void on_all(const std::function<void(ProcessGroup&)>& body) {
    auto groups = make_groups(GetParam().backend, ranks());
    on_all_ranks(groups, body);
  }
};

// Element i of rank r's contribution. Signs and sizes vary, so that the order of a sum shows in its bits.
template <typename T>
T element(std::size_t r, std::size_t i) {
  const std::uint64_t bits = (r * 1'000'003 + i + 1) * 0x9E3779B97F4A7C15u;
  if constexpr (is_half<T>)
    return T(static_cast<float>(static_cast<int>(bits >> 48)) / 77 - 300);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(static_cast<double>(bits >> 20) / 1e9 - 5000);
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return static_cast<std::int64_t>(bits);  // sums overflow
  else
    return static_cast<T>(bits >> 40);
}

template <typename T>
std::vector<T> elements(std::size_t r, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element<T>(r, i);
  return values;
}

template <typename T>
T combine(ReduceOp op, std::size_t ranks, const std::function<T(std::size_t)>& of_rank) {
  if constexpr (is_half<T>) {
    return T(combine<float>(op, ranks, [&](std::size_t r) { return static_cast<float>(of_rank(r)); }));
  } else {
    return *tree_fold(
        0, ranks, [&](std::size_t r) { return std::optional<T>(of_rank(r)); },
        [&](T a, T b) {
          if (op == ReduceOp::min) return std::optional<T>(std::min(a, b));
          if (op == ReduceOp::max) return std::optional<T>(std::max(a, b));
          if constexpr (std::is_same_v<T, std::int64_t>) {
            return std::optional<T>(static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b)));
          } else {
            return std::optional<T>(static_cast<T>(a + b));
          }
        });
  }
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Sizes: 0; odd; above the inline limit; for one type, above one step of the staging buffer.
template <typename T>
std::vector<std::size_t> counts() {
  std::vector<std::size_t> all{0, 1, 7, 5003};
  if (std::is_same_v<T, float>) all.push_back(400'001);
  return all;
}

template <typename Visit>
void for_each_type(const Visit& visit) {
  visit(float{});
  visit(BFloat16{}), visit(Float16{});
  visit(double{});
  visit(std::int64_t{});
  visit(std::uint8_t{});
}

TEST_P(Conformance, AllReduceFollowsTheTreeForAllTypesAndSizes) {
  on_all([&](ProcessGroup& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    for_each_type([&](auto zero) {
      using T = decltype(zero);
      for (std::size_t count : counts<T>()) {
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
          std::vector<T> data = elements<T>(me, count), expected(count);
          for (std::size_t i = 0; i < count; ++i) {
            expected[i] = combine<T>(op, n(), [&](std::size_t r) { return element<T>(r, i); });
          }
          group.all_reduce(buffer(data), op).wait();
          ASSERT_TRUE(same_bits(data, expected)) << name(dtype_of<T>) << " " << count << " op " << static_cast<int>(op);
        }
      }
    });
  });
}

TEST_P(Conformance, MinAndMaxKeepNaN) {
  on_all([&](ProcessGroup& group) {
    std::vector<float> low(3, 1.0f), high(3, 1.0f);
    if (group.rank() == ranks() - 1) low[1] = high[2] = std::numeric_limits<float>::quiet_NaN();
    group.all_reduce(buffer(low), ReduceOp::min).wait();
    group.all_reduce(buffer(high), ReduceOp::max).wait();
    EXPECT_EQ(low[0], 1.0f);
    EXPECT_TRUE(std::isnan(low[1]));
    EXPECT_TRUE(std::isnan(high[2]));
  });
}

TEST_P(Conformance, BroadcastFromEachRoot) {
  on_all([&](ProcessGroup& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    for_each_type([&](auto zero) {
      using T = decltype(zero);
      for (std::size_t count : counts<T>()) {
        for (std::size_t root : {std::size_t{0}, n() - 1}) {
          auto data = elements<T>(me, count);
          group.broadcast(buffer(data), static_cast<int>(root)).wait();
          ASSERT_TRUE(same_bits(data, elements<T>(root, count)));
        }
      }
    });
  });
}

TEST_P(Conformance, AllGatherIsInTheOrderOfRanks) {
  on_all([&](ProcessGroup& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    for_each_type([&](auto zero) {
      using T = decltype(zero);
      for (std::size_t count : counts<T>()) {
        std::vector<T> all, in = elements<T>(me, count), out(n() * count);
        for (std::size_t r = 0; r < n(); ++r) {
          const auto of_rank = elements<T>(r, count);
          all.insert(all.end(), of_rank.begin(), of_rank.end());
        }
        group.all_gather(buffer(in), buffer(out)).wait();
        ASSERT_TRUE(same_bits(out, all));
      }
    });
  });
}

TEST_P(Conformance, AllGatherInPlace) {
  on_all([&](ProcessGroup& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    std::vector<float> out(n() * 3, -1.0f);
    for (std::size_t i = 0; i < 3; ++i) out[me * 3 + i] = element<float>(me, i);
    group.all_gather({out.data() + me * 3, 3, DType::f32}, buffer(out)).wait();
    for (std::size_t r = 0; r < n(); ++r) EXPECT_EQ(out[r * 3 + 2], element<float>(r, 2));
  });
}

TEST_P(Conformance, ManyOperationsAreUnderWayOnBothChannels) {
  on_all([&](ProcessGroup& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    constexpr std::size_t kMany = 100;
    std::vector<std::vector<float>> bulk(kMany), urgent(kMany);
    std::vector<Work> works;
    for (std::size_t k = 0; k < kMany; ++k) {
      bulk[k] = elements<float>(me + k, 997 * (k % 7));
      urgent[k] = elements<float>(me + k, 3);
      works.push_back(group.all_reduce(buffer(bulk[k]), ReduceOp::sum, {.label = fmt::format("bucket {}", k)}));
      works.push_back(group.all_reduce(buffer(urgent[k]), ReduceOp::sum, {.channel = CommChannel::urgent}));
    }
    std::reverse(works.begin(), works.end());
    for (const Work& work : works) work.wait();
    for (std::size_t k = 0; k < kMany; ++k) {
      for (auto* data : {&bulk[k], &urgent[k]}) {
        for (std::size_t i = 0; i < data->size(); ++i) {
          ASSERT_EQ((*data)[i],
                    combine<float>(ReduceOp::sum, n(), [&](std::size_t r) { return element<float>(r + k, i); }));
        }
      }
    }
  });
}

TEST_P(Conformance, AThreadForEachChannel) {
  on_all([&](ProcessGroup& group) {
    std::vector<std::thread> threads;
    for (CommChannel channel : {CommChannel::urgent, CommChannel::bulk}) {
      threads.emplace_back([&group, channel] {
        for (int k = 0; k < 50; ++k) {
          std::vector<std::int64_t> value{k};
          group.all_reduce(buffer(value), ReduceOp::sum, {.channel = channel}).wait();
          ASSERT_EQ(value[0], std::int64_t{k} * group.size());
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST_P(Conformance, BarrierWaitsForAll) {
  // All processes of a host share its clock.
  const auto now = [] { return std::int64_t{std::chrono::steady_clock::now().time_since_epoch().count()}; };
  on_all([&](ProcessGroup& group) {
    if (group.rank() == ranks() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::vector<std::int64_t> arrived{now()};
    group.barrier().wait();
    const std::int64_t left = now();
    group.all_reduce(buffer(arrived), ReduceOp::max).wait();
    EXPECT_GE(left, arrived[0]);
  });
}

TEST_P(Conformance, MessagesAreInOrderForEachPairAndTag) {
  on_all([&](ProcessGroup& group) {
    if (ranks() == 1) return;
    const int me = group.rank(), next = (me + 1) % ranks(), last = (me + ranks() - 1) % ranks();
    // All ranks send first, and receive the tags in another order.
    std::vector<std::vector<float>> out(6), in(6);
    std::vector<Work> works;
    for (std::size_t k = 0; k < 6; ++k) {
      out[k] = elements<float>(static_cast<std::size_t>(me) + k, k * 40'001);
      works.push_back(group.send(buffer(out[k]), next, static_cast<int>(k % 2)));
    }
    for (std::size_t k : {1u, 0u, 3u, 5u, 2u, 4u}) {
      in[k].resize(k * 40'001);
      group.receive(buffer(in[k]), last, static_cast<int>(k % 2)).wait();
      ASSERT_TRUE(same_bits(in[k], elements<float>(static_cast<std::size_t>(last) + k, k * 40'001)));
    }
    for (const Work& work : works) work.wait();
  });
}

TEST_P(Conformance, SubgroupsWorkOnTheirOwn) {
  on_all([&](ProcessGroup& group) {
    std::vector<int> even, all(n());
    std::iota(all.begin(), all.end(), 0);
    std::copy_if(all.begin(), all.end(), std::back_inserter(even), [](int r) { return r % 2 == 0; });
    auto evens = group.subgroup(even);
    auto everyone = group.subgroup(all);
    ASSERT_EQ(evens != nullptr, group.rank() % 2 == 0);
    if (evens) {
      EXPECT_EQ(evens->rank(), group.rank() / 2);
      std::vector<std::int64_t> sum{group.rank()};
      evens->all_reduce(buffer(sum), ReduceOp::sum).wait();
      EXPECT_EQ(sum[0], std::accumulate(even.begin(), even.end(), 0));
    }
    std::vector<std::int64_t> count{1};
    everyone->all_reduce(buffer(count), ReduceOp::sum).wait();
    EXPECT_EQ(count[0], ranks());
    destroy_process_group(evens);
    destroy_process_group(everyone);
  });
}

// Compares with sums of one element at a time. Arrays consist of T, and every sum of two is rounded to T.
template <typename T = float>
void check_tree(ProcessGroup& group, const std::vector<std::size_t>& segments,
                const std::vector<std::vector<int>>& positions, CommChannel channel) {
  std::size_t leaves = 0;
  for (const auto& of_rank : positions) {
    for (int p : of_rank) leaves = std::max(leaves, static_cast<std::size_t>(p) + 1);
  }
  const auto owned = [&](std::size_t p) {
    return std::any_of(positions.begin(), positions.end(), [&](const auto& of_rank) {
      return std::find(of_rank.begin(), of_rank.end(), static_cast<int>(p)) != of_rank.end();
    });
  };
  // Varies by round. Segment 0 is always present, the last one never.
  const auto present = [&](int round, std::size_t p, std::size_t s) {
    return owned(p) && s + 1 != segments.size() && (s == 0 || (p + s + static_cast<std::size_t>(round)) % 3 != 0);
  };
  auto reducer = group.make_tree_reducer({segments, positions, dtype_of<T>}, channel);
  const auto& own = positions[static_cast<std::size_t>(group.rank())];
  for (int round = 0; round < 3; ++round) {
    for (std::size_t k = 0; k < own.size(); ++k) {
      const auto p = static_cast<std::size_t>(own[k]);
      const auto contribution = reducer->contribution(k).template as<T>();
      for (std::size_t i = 0; i < contribution.size(); ++i) contribution[i] = element<T>(p + 100, i);
      for (std::size_t s = 0; s < segments.size(); ++s) reducer->set_present(k, s, present(round, p, s));
    }
    reducer->reduce({.label = fmt::format("bucket 0, step {}", round)});
    std::size_t i = 0;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const auto leaf = [&](std::size_t p) {
        return present(round, p, s) ? std::optional(static_cast<float>(element<T>(p + 100, i))) : std::nullopt;
      };
      const auto join = [](float a, float b) { return std::optional(static_cast<float>(T(a + b))); };
      ASSERT_EQ(reducer->result_present(s), tree_fold(0, leaves, leaf, join).has_value());
      for (std::size_t end = i + segments[s]; i < end; ++i) {
        // Missing segments are zeros.
        ASSERT_EQ(reducer->result()[i], tree_fold(0, leaves, leaf, join).value_or(0)) << "segment " << s << ", " << i;
      }
    }
  }
}

TEST_P(Conformance, TreeReducerFollowsTheTreeOverPositions) {
  on_all([&](ProcessGroup& group) {
    const std::vector<std::size_t> segments{1, 0, 777, 3, 20'000, 5};
    std::vector<std::vector<int>> consecutive(n()), dealt(n()), few(n());
    for (int p = 0; p < 2 * ranks() + 1; ++p) {
      consecutive[std::min(static_cast<std::size_t>(p / 2), n() - 1)].push_back(p);
      dealt[static_cast<std::size_t>(p) % n()].push_back(p);
    }
    few[n() - 1] = {1, 4};  // most ranks have no position, and most positions have no owner
    check_tree(group, segments, consecutive, CommChannel::bulk);
    check_tree(group, segments, dealt, CommChannel::urgent);
    check_tree(group, segments, few, CommChannel::bulk);
    for (const auto& positions : {consecutive, dealt, few}) {
      check_tree<BFloat16>(group, segments, positions, CommChannel::bulk);
    }
  });
}

TEST_P(Conformance, TreeReducerKeepsMinusZero) {
  on_all([&](ProcessGroup& group) {
    std::vector<std::vector<int>> positions(n());
    for (int r = 0; r < ranks(); ++r) positions[static_cast<std::size_t>(r)] = {r};
    auto reducer = group.make_tree_reducer({{1}, positions}, CommChannel::bulk);
    reducer->contribution(0).as<float>()[0] = -0.0f;
    reducer->set_present(0, 0, group.rank() == 0);
    reducer->reduce({});
    EXPECT_TRUE(std::signbit(reducer->result()[0]));
  });
}

TEST_P(Conformance, TreeReducerOfNothing) {
  std::vector<std::vector<int>> positions;
  for (int r = 0; r < ranks(); ++r) positions.push_back({r});
  on_all([&](ProcessGroup& group) { check_tree(group, {}, positions, CommChannel::bulk); });
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, ::testing::ValuesIn(testing::conformance_cases()),
                         [](const auto& info) { return fmt::format("{}_{}", info.param.backend, info.param.ranks); });

}  // namespace
}  // namespace lockstep

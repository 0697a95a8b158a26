#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

constexpr double kEps = 1e-5;

class NormTest : public KernelTest {
 protected:
  struct Images {
    Shape shape;
    Layout layout;

    std::int64_t channels() const { return shape[1]; }
    std::int64_t samples() const { return shape[0] * shape[2] * shape[3]; }
  };

  static std::vector<Images> images() {
    std::vector<Images> images;
    for (const Shape& shape : std::vector<Shape>{{3, 16, 5, 7},
                                                 {2, 64, 4, 4},
                                                 {4, 5, 3, 3},
                                                 {2, 1, 9, 2},
                                                 {33, 32, 1, 1},
                                                 {9, 10, 1, 1},
                                                 {9, 80, 11, 13},
                                                 {2, 520, 3, 5}}) {
      for (Layout layout : layouts_that_fit(shape)) images.push_back({shape, layout});
    }
    return images;
  }

  static std::string str(const Images& i) { return i.shape.str() + " " + std::string(name(i.layout)); }

  TestTensor positive(const Shape& shape) {
    return random_.tensor_between(0.5, 1.5, shape, dtype()).to(master_dtype(), Layout::plain);
  }

  // Any statistics will do: a kernel has no business to check that they are x's.
  void expect_forward(const Images& i, std::int64_t n, bool residual, bool relu) {
    Shape c{i.channels()};
    TestTensor m2 = random_.tensor_between(0.5 * n, 1.5 * n, c, dtype()).to(master_dtype(), Layout::plain);
    Tensors inputs{input(i.shape, i.layout),
                   master(c),
                   m2,
                   positive(c),
                   master(c),
                   residual ? input(i.shape, i.layout) : TestTensor()};
    Kernel kernel = [=](Backend& b, KernelContext& context, Views in, Views out) {
      b.run(context, kernels::Norm{in[0], {n, in[1], in[2]}, kEps, in[3], in[4], in[5], relu, out[0]});
    };
    expect_matches_reference(inputs, {output(i.shape, i.layout)}, kernel);
    expect_in_place(inputs, {output(i.shape, i.layout)}, 0, 0, kernel);
    if (residual) expect_in_place(inputs, {output(i.shape, i.layout)}, 5, 0, kernel);
  }
};

void stats(Backend& b, KernelContext& c, Views in, Views out) {
  const Shape& s = in[0].shape;
  b.run(c, kernels::NormStats{in[0], {s[0] * s[2] * s[3], out[0], out[1]}});
}

TEST_P(NormTest, Stats) {
  for (const Images& i : images()) {
    SCOPED_TRACE(str(i));
    Shape c{i.channels()};
    expect_matches_reference({input(i.shape, i.layout)}, {master_output(c), master_output(c)}, stats);
  }
}

TEST_P(NormTest, StatsOfOneSampleAndOfNone) {
  for (Layout layout : layouts_that_fit({1, 16, 1, 1})) {
    for (std::int64_t n : {0, 1}) {
      TestTensor x = input({n, 16, 1, 1}, layout);
      Tensors out = run({x}, {master_output({16}), master_output({16})}, stats);
      EXPECT_EQ(out[0].values(), n == 1 ? x.values() : std::vector<double>(16));
      EXPECT_EQ(out[1].values(), std::vector<double>(16));
    }
  }
}

// Sums of squares minus the square of the sum would have no digits left.
TEST_P(NormTest, StatsFarFromZero) {
  double spread = dtype() == DType::bf16 ? 100 : 1;
  for (Layout layout : layouts_that_fit({4, 16, 8, 8})) {
    TestTensor x = random_.tensor_between(1000 - spread, 1000 + spread, {4, 16, 8, 8}, dtype(), layout);
    expect_matches_reference({x}, {master_output({16}), master_output({16})}, stats);
  }
}

TEST_P(NormTest, MergesInTheTreeToTheBit) {
  for (int parts : {1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 300}) {
    Tensors inputs;
    std::vector<std::int64_t> counts;
    for (int i = 0; i < parts; ++i) {
      counts.push_back(i % 4 == 3 ? 0 : random_.integer(1, 500));  // every fourth shard is empty
      inputs.push_back(master({37}));
      inputs.push_back(positive({37}));
    }
    SCOPED_TRACE(parts);
    expect_same_bits_as_reference(inputs, {master_output({37}), master_output({37})},
                                  [&](Backend& b, KernelContext& c, Views in, Views out) {
                                    std::vector<BatchNormStats> stats;
                                    std::int64_t n = 0;
                                    for (int i = 0; i < parts; ++i) {
                                      stats.push_back({counts[i], in[2 * i], in[2 * i + 1]});
                                      n += counts[i];
                                    }
                                    b.run(c, kernels::MergeNormStats{stats, {n, out[0], out[1]}});
                                  });
  }
}

TEST_P(NormTest, MergedStatsOfShardsAreThoseOfTheBatch) {
  TestTensor whole = random_.tensor({6, 5, 3, 3}, master_dtype());
  std::vector<double> values = whole.values();
  Tensors shards;  // of 3, 1 and 2 images
  for (auto [begin, n] : {std::pair{0, 3}, {3, 1}, {4, 2}}) {
    shards.emplace_back(Shape{n, 5, 3, 3}, master_dtype(), Layout::plain,
                        std::span(values).subspan(begin * 45, n * 45));
  }
  Tensors of_shards{master_output({5}), master_output({5}), master_output({5}),
                    master_output({5}), master_output({5}), master_output({5})};
  of_shards = run(shards, of_shards, [](Backend& b, KernelContext& c, Views in, Views out) {
    for (int i = 0; i < 3; ++i) stats(b, c, in.subspan(i, 1), out.subspan(2 * i, 2));
  });
  Tensors merged =
      run(of_shards, {master_output({5}), master_output({5})}, [](Backend& b, KernelContext& c, Views in, Views out) {
        std::vector<BatchNormStats> parts{{27, in[0], in[1]}, {9, in[2], in[3]}, {18, in[4], in[5]}};
        b.run(c, kernels::MergeNormStats{parts, {54, out[0], out[1]}});
      });
  Tensors direct = run({whole}, {master_output({5}), master_output({5})}, stats);
  expect_close(merged[0], direct[0], 1e-5);
  expect_close(merged[1], direct[1], 1e-5);
}

TEST_P(NormTest, Forward) {
  for (const Images& i : images()) {
    SCOPED_TRACE(str(i));
    for (bool residual : {false, true}) {
      for (bool relu : {false, true}) expect_forward(i, i.samples(), residual, relu);
    }
    expect_forward(i, 1, false, false);  // running statistics
  }
  expect_forward({{0, 16, 3, 3}, Layout::plain}, 20, true, true);
}

TEST_P(NormTest, Backward) {
  for (const Images& i : images()) {
    SCOPED_TRACE(str(i));
    Shape c{i.channels()};
    std::int64_t n = 2 * i.samples();  // as with a second shard
    TestTensor m2 = random_.tensor_between(0.5 * n, 1.5 * n, c, dtype()).to(master_dtype(), Layout::plain);
    for (bool relu : {false, true}) {
      TestTensor y = relu ? input(i.shape, i.layout) : TestTensor();
      TestTensor dy = input(i.shape, i.layout), x = input(i.shape, i.layout), mean = master(c);
      expect_matches_reference(
          {dy, x, y, mean, m2}, {master_output(c), master_output(c)},
          [&](Backend& b, KernelContext& context, Views in, Views out) {
            b.run(context, kernels::NormBackwardStats{in[0], in[1], in[2], {n, in[3], in[4]}, kEps, out[0], out[1]});
          });
      for (bool residual : {false, true}) {
        Tensors inputs{dy, x, y, mean, m2, positive(c), master(c), master(c)};
        Tensors outputs{output(i.shape, i.layout), residual ? output(i.shape, i.layout) : TestTensor()};
        Kernel kernel = [&](Backend& b, KernelContext& context, Views in, Views out) {
          b.run(context, kernels::NormBackwardData{
                             in[0], in[1], in[2], {n, in[3], in[4]}, kEps, in[5], in[6], in[7], out[0], out[1]});
        };
        expect_matches_reference(inputs, outputs, kernel);
        expect_in_place(inputs, outputs, 0, residual ? 1 : 0, kernel);
      }
    }
  }
}

TEST_P(NormTest, BackwardOfAnEmptyShard) {
  Shape shape{0, 16, 3, 3}, c{16};
  for (Layout layout : layouts_that_fit(shape)) {
    expect_matches_reference(
        {input(shape, layout), input(shape, layout), master(c), positive(c)}, {master_output(c), master_output(c)},
        [&](Backend& b, KernelContext& context, Views in, Views out) {
          b.run(context, kernels::NormBackwardStats{in[0], in[1], {}, {9, in[2], in[3]}, kEps, out[0], out[1]});
        });
  }
}

TEST_P(NormTest, Commits) {
  for (std::int64_t n : {0, 1, 2, 100}) {
    SCOPED_TRACE(n);
    expect_matches_reference(
        {master({37}), positive({37}), master({37}), positive({37})}, {master_output({37}), master_output({37})},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::Copy{in[2], out[0]});
          b.run(c, kernels::Copy{in[3], out[1]});
          std::int64_t batches = 6;
          b.run(c, kernels::CommitNormStats{
                       {n, in[0], in[1]}, 0.1, out[0], out[1], View{&batches, DType::i64, Layout::plain, {}}});
          EXPECT_EQ(batches, 7);
        });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NormTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing

#include "lockstep/onnx/export_onnx.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/tensor/view.h"
#include "tests/expect_error.h"
#include "tests/onnx/model_cases.h"
#include "tests/temporary_folder.h"

namespace lockstep::testing {
namespace {

void write_npy(const std::filesystem::path& path, const Tensor& x) {
  const Tensor host = x.to_host().to(Layout::plain);
  std::string shape;
  for (const std::int64_t extent : host.shape()) shape += fmt::format("{},", extent);
  const char* type = host.dtype() == DType::f32 ? "<f4" : host.dtype() == DType::i64 ? "<i8" : "|u1";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  header.append(64 - (header.size() + 11) % 64, ' ');
  header += '\n';
  host.wait();
  std::ofstream file(path, std::ios::binary);
  const auto size = static_cast<std::uint16_t>(header.size());
  file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(size & 255) << static_cast<char>(size >> 8)
       << header;
  file.write(static_cast<const char*>(host->view().data), static_cast<std::streamsize>(host->view().bytes()));
}

// The same rows again and again.
Tensor rows(const Tensor& x, int axis, std::int64_t count) {
  std::vector<std::int64_t> from;
  for (std::int64_t i = 0; i < count; ++i) from.push_back(i % x.size(axis));
  const Tensor y = index_select(x, axis, Tensor::from(from, {count}));
  return is_floating(y.dtype()) ? y * 0.9 : y;
}

TEST(ExportOnnxTest, FilesPassTheCheckerAndGiveTheOutputs) {
  const char* const kept = std::getenv("LOCKSTEP_ONNX_FILES");
  const TemporaryFolder temporary;
  const std::filesystem::path folder = kept ? std::filesystem::path(kept) : temporary.path();
  const NoGradGuard no_grad;
  for (const OnnxCase& c : onnx_cases(std::getenv("LOCKSTEP_ONNX_LARGE") != nullptr)) {
    SCOPED_TRACE(c.name);
    try {
      export_onnx(folder / (c.name + ".onnx"), *c.model, c.examples, c.forward, c.options);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    for (const std::int64_t batch : {1, 7}) {
      std::vector<Tensor> in;
      for (std::size_t i = 0; i < c.examples.size(); ++i)
        in.push_back(rows(c.examples[i], c.options.batch_axes.empty() ? 0 : c.options.batch_axes[i], batch));
      const std::vector<Tensor> out = c.forward(in);
      const auto file = [&](const char* what, std::size_t i) {
        return folder / fmt::format("{}.{}.{}{}.npy", c.name, batch, what, i);
      };
      for (std::size_t i = 0; i < in.size(); ++i) write_npy(file("in", i), in[i]);
      for (std::size_t i = 0; i < out.size(); ++i) write_npy(file("out", i), out[i]);
    }
  }
  std::string missing;
  for (const auto& [how, package] : {std::pair{"checker", "onnx"}, std::pair{"onnxruntime", "onnxruntime"}}) {
    if (std::system(fmt::format("/usr/bin/python3 -c 'import {}' 2> /dev/null", package).c_str()) != 0) {
      missing += fmt::format(" python3-{}", package);
      continue;
    }
    EXPECT_EQ(
        std::system(fmt::format("/usr/bin/python3 {} {} '{}'", LOCKSTEP_ONNX_CHECK, how, folder.string()).c_str()), 0);
  }
  if (!missing.empty()) GTEST_SKIP() << "not installed:" << missing;
}

}  // namespace
}  // namespace lockstep::testing

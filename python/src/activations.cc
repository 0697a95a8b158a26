// Activations, dropout, and layers that change shapes.
#include "layers.h"

namespace lockstep::python {
namespace {

template <typename M>
void add_plain(py::module_& m, const char* name) {
  add_layer<M>(m, name, [] { return std::make_unique<M>(); });
}
// `inplace` is an attribute that calls from Python use: see writes_input() in module_class.cc.
template <typename M>
void add_inplace(py::module_& m, const char* name) {
  add_layer<M>(
      m, name, [](bool) { return std::make_unique<M>(); }, "inplace"_a = false);
}
template <typename M>
void add_number(py::module_& m, const char* name, const char* argument, double usual) {
  add_layer<M>(
      m, name, [](double x) { return std::make_unique<M>(x); }, py::arg(argument) = usual);
}
template <typename M>
void add_number_inplace(py::module_& m, const char* name, const char* argument, double usual) {
  add_layer<M>(
      m, name, [](double x, bool) { return std::make_unique<M>(x); }, py::arg(argument) = usual, "inplace"_a = false);
}
template <typename M>
void add_dropout(py::module_& m, const char* name) {
  add_layer<M>(
      m, name, [](double p, bool) { return std::make_unique<M>(p); }, "p"_a = 0.5, "inplace"_a = false)
      .def_property("p", &M::p, &M::set_p, "May be changed.");
}
template <typename M>
void add_over_dim(py::module_& m, const char* name) {
  add_layer<M>(
      m, name,
      [name](std::optional<int> dim) {
        check(dim.has_value(), "{}: no dim, expected the axis that sums to 1, such as dim=1", name);
        return std::make_unique<M>(*dim);
      },
      "dim"_a = py::none());
}
template <typename M, std::size_t sides>
void add_padding(py::module_& m, const char* name) {
  add_layer<M>(
      m, name, [](Extents<sides> widths) { return std::make_unique<M>(widths.values); }, "padding"_a);
}
template <typename M, std::size_t sides>
void add_constant_padding(py::module_& m, const char* name) {
  add_layer<M>(
      m, name, [](Extents<sides> widths, double value) { return std::make_unique<M>(widths.values, value); },
      "padding"_a, "value"_a);
}

}  // namespace

void add_activations(py::module_& m) {
  add_plain<Identity>(m, "Identity");
  add_inplace<ReLU>(m, "ReLU");
  add_inplace<ReLU6>(m, "ReLU6");
  add_inplace<SiLU>(m, "SiLU");
  add_inplace<SELU>(m, "SELU");
  add_inplace<Mish>(m, "Mish");
  add_inplace<Hardsigmoid>(m, "Hardsigmoid");
  add_inplace<Hardswish>(m, "Hardswish");
  add_plain<Sigmoid>(m, "Sigmoid");
  add_plain<Tanh>(m, "Tanh");
  add_plain<LogSigmoid>(m, "LogSigmoid");
  add_plain<Softsign>(m, "Softsign");
  add_plain<Tanhshrink>(m, "Tanhshrink");
  add_number<Hardshrink>(m, "Hardshrink", "lambd", 0.5);
  add_number<Softshrink>(m, "Softshrink", "lambd", 0.5);
  add_number_inplace<LeakyReLU>(m, "LeakyReLU", "negative_slope", 0.01);
  add_number_inplace<ELU>(m, "ELU", "alpha", 1);
  add_number_inplace<CELU>(m, "CELU", "alpha", 1);
  add_dropout<Dropout>(m, "Dropout");
  add_dropout<Dropout1d>(m, "Dropout1d");
  add_dropout<Dropout2d>(m, "Dropout2d");
  add_over_dim<Softmax>(m, "Softmax");
  add_over_dim<LogSoftmax>(m, "LogSoftmax");
  add_over_dim<Softmin>(m, "Softmin");
  add_layer<GLU>(
      m, "GLU", [](int dim) { return std::make_unique<GLU>(dim); }, "dim"_a = -1);
  add_layer<Softplus>(
      m, "Softplus", [](double beta, double threshold) { return std::make_unique<Softplus>(beta, threshold); },
      "beta"_a = 1.0, "threshold"_a = 20.0);
  add_layer<Threshold>(
      m, "Threshold",
      [](double threshold, double value, bool) { return std::make_unique<Threshold>(threshold, value); }, "threshold"_a,
      "value"_a, "inplace"_a = false);
  add_layer<Hardtanh>(
      m, "Hardtanh", [](double low, double high, bool) { return std::make_unique<Hardtanh>(low, high); },
      "min_val"_a = -1.0, "max_val"_a = 1.0, "inplace"_a = false);
  add_layer<GELU>(
      m, "GELU",
      [](const std::string& approximate) {
        check(approximate == "none" || approximate == "tanh", "gelu: approximate '{}', expected 'none' or 'tanh'",
              approximate);
        return GeluOptions{approximate == "tanh" ? GeluApproximation::tanh : GeluApproximation::none};
      },
      "approximate"_a = "none");
  add_layer<PReLU>(
      m, "PReLU", [](std::int64_t n, double init) { return PReLUOptions{.num_parameters = n, .init = init}; },
      "num_parameters"_a = 1, "init"_a = 0.25);

  add_layer<Flatten>(
      m, "Flatten", [](int start, int end) { return std::make_unique<Flatten>(start, end); }, "start_dim"_a = 1,
      "end_dim"_a = -1);
  add_layer<Unflatten>(
      m, "Unflatten", [](int dim, const Shape& sizes) { return std::make_unique<Unflatten>(dim, sizes); }, "dim"_a,
      "unflattened_size"_a);
  add_padding<ZeroPad1d, 2>(m, "ZeroPad1d");
  add_padding<ZeroPad2d, 4>(m, "ZeroPad2d");
  add_padding<ReflectionPad1d, 2>(m, "ReflectionPad1d");
  add_padding<ReflectionPad2d, 4>(m, "ReflectionPad2d");
  add_padding<ReplicationPad1d, 2>(m, "ReplicationPad1d");
  add_padding<ReplicationPad2d, 4>(m, "ReplicationPad2d");
  add_padding<CircularPad1d, 2>(m, "CircularPad1d");
  add_padding<CircularPad2d, 4>(m, "CircularPad2d");
  add_constant_padding<ConstantPad1d, 2>(m, "ConstantPad1d");
  add_constant_padding<ConstantPad2d, 4>(m, "ConstantPad2d");

  add_layer<Unfold>(
      m, "Unfold",
      [](Extents<2> kernel, Extents<2> dilation, Extents<2> padding, Extents<2> stride) {
        return UnfoldOptions{kernel.values, dilation.values, padding.values, stride.values};
      },
      "kernel_size"_a, "dilation"_a = 1, "padding"_a = 0, "stride"_a = 1);
  add_layer<Fold>(
      m, "Fold",
      [](Extents<2> output, Extents<2> kernel, Extents<2> dilation, Extents<2> padding, Extents<2> stride) {
        return std::make_unique<Fold>(output.values,
                                      UnfoldOptions{kernel.values, dilation.values, padding.values, stride.values});
      },
      "output_size"_a, "kernel_size"_a, "dilation"_a = 1, "padding"_a = 0, "stride"_a = 1);
  add_layer<PixelShuffle>(
      m, "PixelShuffle", [](std::int64_t factor) { return std::make_unique<PixelShuffle>(factor); },
      "upscale_factor"_a);
  add_layer<PixelUnshuffle>(
      m, "PixelUnshuffle", [](std::int64_t factor) { return std::make_unique<PixelUnshuffle>(factor); },
      "downscale_factor"_a);
  add_layer<Upsample>(
      m, "Upsample",
      [](std::optional<Extents<2>> size, std::optional<Extents<2>> factor, const std::string& mode,
         std::optional<bool> align_corners) {
        InterpolateOptions o{.align_corners = align_corners.value_or(false)};
        if (size) o.size = size->values;
        if (factor) {
          check(factor->values[0] == factor->values[1], "upsample: scale factors {} and {}, expected one for both axes",
                factor->values[0], factor->values[1]);
          o.scale_factor = static_cast<double>(factor->values[0]);
        }
        o.mode = value_of<Interpolation>("upsample: mode", mode,
                                         {{"nearest", Interpolation::nearest},
                                          {"bilinear", Interpolation::bilinear},
                                          {"bicubic", Interpolation::bicubic},
                                          {"area", Interpolation::area}});
        return o;
      },
      "size"_a = py::none(), "scale_factor"_a = py::none(), "mode"_a = "nearest", "align_corners"_a = py::none());
}

}  // namespace lockstep::python

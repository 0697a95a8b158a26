// Base of lockstep.amp: the mode of autocast, and the scale of a loss.
#include "bindings.h"

namespace lockstep::python {

void add_amp(py::module_& m) {
  m.def("_autocast_dtype", &autocast_dtype);
  m.def("_set_autocast_dtype", &set_autocast_dtype, "dtype"_a.none(true));

  py::class_<LossScaler> scaler(m, "LossScalerEngine", "The scale of a loss, on devices.");
  // The scale is beside the loss, or on the first device if the loss is in host memory. Optimizers copy it to theirs.
  scaler.def(py::init([](const Tensor& loss, double initial_scale, std::int64_t growth_interval) {
               std::vector<Device> devices = loss.devices();
               if (loss.device().is_host()) devices = {default_runtime().devices()[0]};
               return new LossScaler(devices, {.initial_scale = initial_scale, .growth_interval = growth_interval});
             }),
             "loss"_a, "initial_scale"_a, "growth_interval"_a);
  scaler.def_static(
      "check",
      [](double scale, std::int64_t good_steps, std::int64_t growth_interval) {
        LossScaler::check_state({.scale = scale, .good_steps = good_steps}, growth_interval);
      },
      "scale"_a, "good_steps"_a, "growth_interval"_a, "Throws where an object with them would.");
  scaler.def("scale", &LossScaler::scale, "loss"_a, released());
  scaler.def(
      "current", [](const LossScaler& self) -> Tensor { return self.current(); }, released());
  scaler.def(
      "unscale", [](LossScaler& self, Optimizer& optimizer) { optimizer.unscale(self); }, "optimizer"_a, released());
  // Divides now, not in the next step, so that gradients can be read and changed.
  scaler.def(
      "unscale_now",
      [](LossScaler& self, Optimizer& optimizer) {
        optimizer.unscale(self);
        optimizer.map_gradients([](const Tensor& gradient, const Parameter&) { return gradient; });
      },
      "optimizer"_a, released());
  scaler.def(
      "state",
      [](const LossScaler& self) {
        const LossScalerState state = self.state();
        return std::pair(state.scale, state.good_steps);
      },
      released());
  scaler.def(
      "set_state",
      [](LossScaler& self, double scale, std::int64_t good_steps) {
        self.set_state({.scale = scale, .good_steps = good_steps});
      },
      "scale"_a, "good_steps"_a, released());
}

}  // namespace lockstep::python

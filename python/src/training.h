// The parts of `lockstep._core` that train, use, and show whole models.
#pragma once

#include "bindings.h"

namespace lockstep::python {

void add_training(py::module_& m);   // Trainer, evaluate, metrics
void add_predictor(py::module_& m);  // Predictor, export_onnx
void add_task(py::module_& m);       // open_data, load_run
void add_watching(py::module_& m);   // TensorBoardWriter, summary, plots, Timeline

}  // namespace lockstep::python

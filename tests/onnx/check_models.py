# check_models.py checker FOLDER: each NAME.onnx passes onnx's checker and its inference of shapes.
# check_models.py onnxruntime FOLDER: each gives the outputs of NAME.BATCH.out*.npy for the inputs NAME.BATCH.in*.npy
# within 1e-5. Debian's two packages share a library and cannot be imported into one process.
import glob, os, sys

how, folder = sys.argv[1:]
failures = 0


def fail(text):
    global failures
    failures += 1
    print(text)


def check(path):
    import onnx

    onnx.checker.check_model(onnx.load(path), full_check=True)
    return 1


def run(path):
    import numpy, onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    compared = 0
    for first in sorted(glob.glob(path[: -len("onnx")] + "*.in0.npy")):
        stem = first[: -len("in0.npy")]
        feed = {i.name: numpy.load(f"{stem}in{k}.npy") for k, i in enumerate(session.get_inputs())}
        for k, found in enumerate(session.run(None, feed)):
            name = f"{os.path.basename(stem)}out{k}"
            expected = numpy.load(f"{stem}out{k}.npy")
            compared += 1
            if found.shape != expected.shape or found.dtype != expected.dtype:
                fail(f"{name}: {found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}")
                continue
            a, b = found.astype("f8"), expected.astype("f8")
            same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
            with numpy.errstate(invalid="ignore"):
                near = numpy.abs(a - b) <= 1e-5 * numpy.maximum(1.0, numpy.abs(b))
            if not numpy.all(same | near):
                fail(f"{name}: {numpy.sum(~(same | near))} of {a.size} elements differ: {a[~(same | near)][:3]}, "
                     f"expected {b[~(same | near)][:3]}")
    return compared


files, checks = sorted(glob.glob(os.path.join(folder, "*.onnx"))), 0
for path in files:
    try:
        done = check(path) if how == "checker" else run(path)
        checks += done
        if done == 0:
            fail(f"{path}: nothing to compare")
    except Exception as error:
        fail(f"{os.path.basename(path)}: {type(error).__name__}: {error}")
print(f"{how}: {len(files)} files, {checks} checks, {failures} failures")
sys.exit(1 if failures or not files else 0)

#include "camera.h"

int main(void) {
    struct frame f = take_frame(3);
    return send_frame(&f);
}

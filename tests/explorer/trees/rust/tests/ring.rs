use tidewatch::gauge::Reading;
use tidewatch::store::ring::Ring;
use tidewatch::store::Store;

#[test]
fn the_oldest_reading_goes_first() {
    let mut ring = Ring::new(1);
    ring.put(Reading { gauge: "a".into(), level_cm: 1, at: 1 });
    ring.put(Reading { gauge: "b".into(), level_cm: 2, at: 2 });
    assert_eq!(ring.last(5).len(), 1);
}
